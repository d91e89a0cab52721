//! Objects that count or bound resources by name: `ResourceQuota` and `LimitRange`.

use std::collections::BTreeSet;

use divvy_api::ResourceNames;
use kube::api::ListParams;
use serde_json::Value;

use crate::cluster::{Cluster, Refusal};

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Resources that it counts or bounds, without `requests.` in front.
    counted: BTreeSet<String>,
    /// Resources that it counts limits of, which Kubernetes does for CPU, memory and ephemeral storage alone.
    pub(crate) in_vain: Vec<String>,
}

/// Kinds and where they are listed.
const KINDS: [(&str, &str); 2] = [("ResourceQuota", "/api/v1/resourcequotas"), ("LimitRange", "/api/v1/limitranges")];

/// Resources that a quota has to name, because each is another way to request the same GPUs.
pub(crate) fn all_four(names: &ResourceNames) -> String {
    let ResourceNames { count, memory, memory_percentage, cores, .. } = names;
    format!("{count}, {memory}, {memory_percentage} and {cores}")
}

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
        let hard = keys(&object["spec"]["hard"]);
        let (limited, requested): (Vec<String>, Vec<String>) =
            hard.into_iter().partition(|key| key.starts_with("limits."));
        let plain = |key: &str, prefix: &str| key.strip_prefix(prefix).unwrap_or(key).to_owned();
        let requested = requested.iter().map(|key| plain(key, "requests."));
        let in_vain = limited.iter().map(|key| plain(key, "limits.")).filter(|name| name.contains('/'));
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let namespace = text("namespace");
        let name = text("name");
        let counted = bounded.chain(requested).collect();
        let in_vain = in_vain.collect();
        Some(Self { kind, namespace, name, counted, in_vain })
    }

    /// Resources that it names, among these.
    pub(crate) fn among(&self, resources: &BTreeSet<String>) -> Vec<String> {
        resources.iter().filter(|name| self.counted.contains(*name) || self.in_vain.contains(name)).cloned().collect()
    }

    /// Those of these resources that Kubernetes counts, or bounds, by it.
    pub(crate) fn counted(&self, resources: &BTreeSet<String>) -> Vec<String> {
        self.counted.intersection(resources).cloned().collect()
    }
}
