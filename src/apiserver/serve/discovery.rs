//! What is served, as `kubectl api-resources` asks. Aggregated discovery isn't offered: kube-apiserver makes it of these.

use serde_json::{Value, json};

use super::{custom_metrics, openapi};
use crate::objects::Kind;

/// An API group, in the one version that is served.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    name: &'static str,
    version: &'static str,
    /// `resources` of the `APIResourceList`.
    resources: fn() -> Vec<Value>,
    /// The third version's document.
    openapi: fn() -> Value,
}

// === impl Group ===

impl Group {
    /// What `GpuNode`s say.
    pub const OBJECTS: Self =
        Self { name: "metrics.nvidia.com", version: "v1alpha1", resources: objects, openapi: openapi::objects };
    /// What pods use.
    pub const CUSTOM_METRICS: Self = Self {
        name: "custom.metrics.k8s.io",
        version: "v1beta2",
        resources: custom_metrics::resources,
        openapi: openapi::custom_metrics,
    };

    /// Paths and what is there, but for the objects.
    pub fn documents(&self) -> [(String, Value); 3] {
        let (group, version) = (format!("/apis/{}", self.name), self.group_version());
        [
            (group, self.document()),
            (format!("/apis/{version}"), self.resources()),
            (format!("/openapi/v3/apis/{version}"), (self.openapi)()),
        ]
    }

    /// `metrics.nvidia.com/v1alpha1`.
    pub fn group_version(&self) -> String {
        format!("{}/{}", self.name, self.version)
    }

    fn document(&self) -> Value {
        let version = json!({ "groupVersion": self.group_version(), "version": self.version });
        json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": self.name, "versions": [version], "preferredVersion": version,
        })
    }

    fn resources(&self) -> Value {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": self.group_version(),
            "resources": (self.resources)(),
        })
    }
}

/// `/apis`.
pub fn groups(served: &[Group]) -> Value {
    let group = |group: &Group| {
        let mut group = group.document();
        if let Some(group) = group.as_object_mut() {
            group.retain(|key, _| !matches!(key.as_str(), "kind" | "apiVersion"));
        }
        group
    };
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": served.iter().map(group).collect::<Vec<_>>() })
}

fn objects() -> Vec<Value> {
    let resource = |kind: Kind| {
        json!({
            "name": kind.plural(), "singularName": kind.as_str().to_lowercase(), "namespaced": false,
            "kind": kind.as_str(), "verbs": ["get", "list", "watch"],
        })
    };
    Kind::ALL.map(resource).into()
}
