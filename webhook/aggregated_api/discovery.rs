//! What is served, as `kubectl api-resources` asks. Aggregated discovery isn't offered: kube-apiserver makes it of these.

use serde_json::{Value, json};

use super::objects::{API_VERSION, GROUP, ServedKind, VERSION};

/// Paths and what is there: the groups, the group, and its resources.
pub(super) fn documents() -> [(String, Value); 3] {
    let version = json!({ "groupVersion": API_VERSION, "version": VERSION });
    let group = json!({ "name": GROUP, "versions": [version], "preferredVersion": version });
    let mut alone = group.clone();
    (alone["kind"], alone["apiVersion"]) = ("APIGroup".into(), "v1".into());
    let resources = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION,
        "resources": ServedKind::ALL.map(resource),
    });
    [
        ("/apis".to_owned(), json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })),
        (format!("/apis/{GROUP}"), alone),
        (format!("/apis/{API_VERSION}"), resources),
    ]
}

fn resource(kind: ServedKind) -> Value {
    json!({
        "name": kind.plural(), "singularName": kind.as_str().to_lowercase(), "namespaced": false,
        "kind": kind.as_str(), "verbs": ["get", "list", "watch"],
    })
}
