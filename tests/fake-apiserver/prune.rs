//! Fields that a custom resource's definition doesn't know are dropped from its objects, without a word.

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
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    match value {
        Value::Object(map) => {
            let of = |field: &str| schema["properties"].get(field).or_else(|| schema.get("additionalProperties"));
            map.retain(|field, _| of(field).is_some());
            for (field, value) in map {
                walk(value, of(field).unwrap_or(&Value::Null));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, &schema["items"])),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
