//! What is served, as `kubectl api-resources` asks. Aggregated discovery isn't offered: kube-apiserver makes it of these.

use serde_json::{Value, json};

use crate::objects::Kind;

/// `/apis`.
pub fn groups() -> Value {
    let mut group = group();
    if let Some(group) = group.as_object_mut() {
        group.retain(|key, _| !matches!(key.as_str(), "kind" | "apiVersion"));
    }
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })
}

/// `/apis/metrics.nvidia.com`.
pub fn group() -> Value {
    let version = json!({ "groupVersion": "metrics.nvidia.com/v1alpha1", "version": "v1alpha1" });
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": "metrics.nvidia.com", "versions": [version],
        "preferredVersion": version,
    })
}

/// `/apis/metrics.nvidia.com/v1alpha1`.
pub fn resources() -> Value {
    let resource = |kind: Kind| {
        json!({
            "name": kind.plural(), "singularName": kind.as_str().to_lowercase(), "namespaced": false,
            "kind": kind.as_str(), "verbs": ["get", "list", "watch"],
        })
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.nvidia.com/v1alpha1",
        "resources": Kind::ALL.map(resource),
    })
}
