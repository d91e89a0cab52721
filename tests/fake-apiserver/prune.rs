//! What the schema of a custom resource does to its objects: fields that it doesn't name are dropped without a word, and
//! defaults are filled in.

use serde_json::Value;

/// Drops from an object what its schema doesn't name. Type and metadata are every object's.
pub(crate) fn prune(object: &mut Value, schema: &Value) {
    let Some(map) = object.as_object_mut().filter(|_| schema.is_object()) else { return };
    let every = ["apiVersion", "kind", "metadata"].map(|field| map.remove_entry(field));
    walk(object, schema);
    if let Some(map) = object.as_object_mut() {
        map.extend(every.into_iter().flatten());
    }
}

fn walk(value: &mut Value, schema: &Value) {
    if keeps_all(schema) {
        return;
    }
    match value {
        Value::Object(map) => {
            map.retain(|field, _| declared(schema, field).is_some());
            for (field, value) in map {
                walk(value, declared(schema, field).unwrap_or(&Value::Null));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, &schema["items"])),
        _ => {}
    }
}

/// Path of the first field that a schema doesn't name, as the error of server-side apply has it.
pub(crate) fn undeclared(value: &Value, schema: &Value) -> Option<String> {
    if keeps_all(schema) {
        return None;
    }
    match value {
        Value::Object(map) => map.iter().find_map(|(field, value)| {
            let Some(own) = declared(schema, field) else { return Some(format!(".{field}")) };
            undeclared(value, own).map(|below| format!(".{field}{below}"))
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| undeclared(item, &schema["items"]).map(|below| format!("[{at}]{below}"))),
        _ => None,
    }
}

/// Schema of a field that an object's schema names, or allows by `additionalProperties`.
fn declared<'s>(schema: &'s Value, field: &str) -> Option<&'s Value> {
    schema["properties"].get(field).or_else(|| schema.get("additionalProperties"))
}

fn keeps_all(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

/// Fills in the defaults of fields that an object lacks.
pub(crate) fn fill_in(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(map) => {
            for (field, own) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = own.get("default").filter(|_| map.get(field).is_none_or(Value::is_null)) {
                    map.insert(field.clone(), default.clone());
                }
                if let Some(value) = map.get_mut(field) {
                    fill_in(value, own);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, &schema["items"])),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_of_absent_fields_are_filled_in() {
        let schema = json!({ "properties": { "status": { "properties": {
            "cards": { "default": [] }, "scales": { "default": {}, "properties": { "cores": { "default": 100 } } },
        } } } });
        let mut object = json!({ "status": { "cards": null } });
        fill_in(&mut object, &schema);
        assert_eq!(object, json!({ "status": { "cards": [], "scales": { "cores": 100 } } }));
        let mut empty = json!({});
        fill_in(&mut empty, &schema);
        assert_eq!(empty, json!({}), "an absent object has no fields");
    }

    #[test]
    fn what_the_schema_does_not_name_is_dropped() {
        let schema = json!({ "properties": {
            "spec": { "properties": { "cards": { "items": { "properties": { "uuid": {} } } } } },
            "labels": { "additionalProperties": { "type": "string" } },
            "free": { "x-kubernetes-preserve-unknown-fields": true },
        } });
        let mut object = json!({
            "kind": "X", "metadata": { "name": "x" }, "more": 1,
            "spec": { "cards": [{ "uuid": "a", "new": 1 }], "new": {} }, "labels": { "a": "b" }, "free": { "c": [] },
        });
        prune(&mut object, &schema);
        assert_eq!(
            object,
            json!({
                "kind": "X", "metadata": { "name": "x" },
                "spec": { "cards": [{ "uuid": "a" }] }, "labels": { "a": "b" }, "free": { "c": [] },
            })
        );
        let before = object.clone();
        prune(&mut object, &Value::Null);
        assert_eq!(object, before, "without a schema nothing is");
    }
}
