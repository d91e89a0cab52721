//! The subresource `scale` of workloads, which is read alone: nobody here scales.

use serde_json::{Value, json};

use super::object::{Object, items, text};

/// A `Scale` of autoscaling/v1.
pub(crate) fn of(workload: &Object) -> Value {
    let metadata = &workload["metadata"];
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": { "replicas": workload["spec"]["replicas"].as_i64().unwrap_or(1) },
        "status": {
            "replicas": workload["status"]["replicas"].as_i64().unwrap_or(0), "selector": selector(&workload["spec"]["selector"]),
        },
    })
}

/// A `LabelSelector` as text, by keys and values in order as `k8s.io/apimachinery/pkg/labels` has it.
fn selector(selector: &Value) -> String {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let equal = equal.map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())));
    let expressions = items(selector, "/matchExpressions").iter().map(|expression| {
        let mut values: Vec<_> = items(expression, "/values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let (key, values) = (text(expression, "/key"), values.join(","));
        let written = match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key, written)
    });
    let mut all: Vec<_> = equal.chain(expressions).collect();
    all.sort();
    all.into_iter().map(|(_, written)| written).collect::<Vec<_>>().join(",")
}
