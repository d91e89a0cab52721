//! Removes from the Node what the daemon wrote there.

use std::collections::BTreeMap;

use divvy_api::names::annotation::{GENERATION, LABELS};
use divvy_api::{ResourceName, ResourceNames};
use kube::Client;
use serde_json::{Map, Value, json};

use super::cluster::{Cluster, find_node};
use super::node::{FEATURE_DISCOVERY, NodeView};

/// Removes Divvy's amounts, labels and annotations from the Node of this name and returns which; none if there are none, or no
/// such Node.
pub async fn remove(client: Client, name: &str, names: &ResourceNames) -> anyhow::Result<Vec<String>> {
    let Some(node) = find_node(client.clone(), name).await? else { return Ok(Vec::new()) };
    let Removal { patch, what } = Removal::new(&node, &[&names.memory, &names.memory_percentage, &names.cores]);
    if !what.is_empty() {
        Cluster::new(client, name).patch_node(&patch).await?;
    }
    Ok(what)
}

/// A merge patch of the Node's status, and a list of what it removes.
pub(super) struct Removal {
    pub(super) patch: Value,
    pub(super) what: Vec<String>,
}

// === impl Removal ===

impl Removal {
    /// A removal of these `amounts` and of all labels and annotations.
    pub(super) fn new(node: &NodeView, amounts: &[&ResourceName]) -> Self {
        let nothing = BTreeMap::new();
        let (annotations, labels) = (node.metadata.annotations.as_ref(), node.metadata.labels.as_ref());
        let (annotations, labels) = (annotations.unwrap_or(&nothing), labels.unwrap_or(&nothing));
        let amounts: Vec<&str> = amounts
            .iter()
            .map(|name| name.as_str())
            .filter(|name| node.status.capacity.contains_key(*name) || node.status.allocatable.contains_key(*name))
            .collect();
        // With feature discovery there its labels go by the same names.
        let own = annotations.get(LABELS).filter(|_| !labels.contains_key(FEATURE_DISCOVERY));
        let own: Vec<&str> =
            own.iter().flat_map(|list| list.split(',')).filter(|key| labels.contains_key(*key)).collect();
        let notes: Vec<&str> = [GENERATION, LABELS].into_iter().filter(|key| annotations.contains_key(*key)).collect();
        let nulls = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), Value::Null)).collect::<Map<_, _>>();
        let gone = nulls(&amounts);
        let patch = json!({
            "metadata": { "annotations": nulls(&notes), "labels": nulls(&own) },
            "status": { "capacity": gone, "allocatable": gone },
        });
        let said = |kind: &'static str, keys: Vec<&str>| {
            keys.into_iter().map(move |key| format!("{kind} {key}")).collect::<Vec<_>>()
        };
        let what = [said("amount", amounts), said("label", own), said("annotation", notes)].concat();
        Self { patch, what }
    }
}
