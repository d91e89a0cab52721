//! What every object has, read from and written to raw JSON.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// An object as clients sent it, so that fields nobody here knows survive.
pub type Object = Value;

/// Fields of `metadata` that only the server writes.
const OF_THE_SERVER: &[&str] =
    &["creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "name", "namespace", "uid"];

/// The text at a JSON pointer; empty if there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a JSON pointer; empty if there is none.
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Name of an object; empty if it has none.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Namespace of an object; empty if it has none.
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// UID of an object; empty if it has none.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// The object below `field`, which is made one if it isn't.
pub(crate) fn map_at<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    map(map(object).entry(field).or_insert(Value::Null))
}

/// The object's own map; anything else becomes an empty one.
pub fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object just above"),
    }
}

/// Removes all fields that are null, however deep.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    map_at(object, "metadata")
}

/// Sets `field` to what `from` has there, or removes it.
pub(crate) fn copy(into: &mut Map<String, Value>, from: Option<&Value>, field: &str) {
    match from.and_then(|from| from.get(field)) {
        Some(value) => into.insert(field.to_owned(), value.clone()),
        None => into.remove(field),
    };
}

/// Gives back what clients can't change.
pub(crate) fn keep_identity(object: &mut Object, live: &Object) {
    let old = live.get("metadata");
    for field in OF_THE_SERVER {
        copy(metadata(object), old, field);
    }
}

/// Now, as Kubernetes writes instants: whole seconds, UTC.
pub fn now() -> String {
    stamp(Timestamp::now())
}

pub(crate) fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Sets a condition of `status.conditions`, or adds it.
pub fn set_condition(object: &mut Object, condition: Value) {
    let conditions = map_at(object, "status").entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|old| old["type"] == condition["type"]) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

/// Whether an object has finalizers.
pub(crate) fn is_held(object: &Object) -> bool {
    !items(object, "/metadata/finalizers").is_empty()
}
