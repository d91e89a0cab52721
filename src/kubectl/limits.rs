//! Objects that count or bound resources by name: `ResourceQuota` and `LimitRange`.

use std::collections::BTreeSet;

use kube::api::ListParams;
use serde_json::Value;

use crate::cluster::{Cluster, Refusal};

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Resources without `requests.` or `limits.` in front.
    resources: Vec<String>,
    /// Resources that it counts limits of, which Kubernetes does for CPU, memory and ephemeral storage alone.
    pub(crate) in_vain: Vec<String>,
}

/// Kinds and where they are listed.
const KINDS: [(&str, &str); 2] = [("ResourceQuota", "/api/v1/resourcequotas"), ("LimitRange", "/api/v1/limitranges")];

// === impl Limit ===

impl Limit {
    /// All of a cluster.
    pub(crate) async fn list(cluster: &Cluster) -> Result<Vec<Self>, Refusal> {
        let mut limits = Vec::new();
        for (kind, path) in KINDS {
            let found: Vec<Value> = cluster.list_at(path, ListParams::default()).await?;
            limits.extend(found.iter().filter_map(|object| Self::read(kind, object)));
        }
        Ok(limits)
    }

    /// An object of this kind; `None` if it is none of them.
    pub(crate) fn read(kind: &str, object: &Value) -> Option<Self> {
        let (kind, _) = KINDS.into_iter().find(|(known, _)| *known == kind)?;
        let keys = |object: &Value| -> Vec<String> {
            object.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
        };
        let limits = object["spec"]["limits"].as_array().into_iter().flatten();
        let fields = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
        let bounded = limits.flat_map(|limit| fields.into_iter().flat_map(|field| keys(&limit[field])));
        let counted = keys(&object["spec"]["hard"]).into_iter().map(|key| {
            let plain = key.strip_prefix("requests.").or_else(|| key.strip_prefix("limits."));
            plain.unwrap_or(&key).to_owned()
        });
        let limited =
            keys(&object["spec"]["hard"]).into_iter().filter_map(|key| key.strip_prefix("limits.").map(str::to_owned));
        let in_vain = limited.filter(|name| name.contains('/')).collect();
        let resources: BTreeSet<String> = bounded.chain(counted).collect();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        Some(Self { kind, namespace, name, resources: resources.into_iter().collect(), in_vain })
    }

    /// Those of these resources that it names.
    pub(crate) fn of(&self, resources: &BTreeSet<String>) -> Vec<String> {
        self.resources.iter().filter(|name| resources.contains(*name)).cloned().collect()
    }
}
