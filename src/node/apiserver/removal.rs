//! Removes from Nodes what Divvy wrote there.

use std::collections::BTreeMap;

use divvy_api::names::annotation::{GENERATION, LABELS};
use divvy_api::names::taint::is_soft;
use divvy_api::{ResourceName, ResourceNames};
use divvy_runtime::api_server::within_deadline;
use k8s_openapi::api::core::v1::Taint;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};

use super::node::{FEATURE_DISCOVERY, NodeView, find_node};

/// Most Nodes that are listed at a time, as kubectl has it.
const PAGE: u32 = 500;

/// Removes Divvy's amounts, labels and annotations from the Node of this name and returns which; none if there are none, or no
/// such Node.
pub async fn remove(client: Client, name: &str, names: &ResourceNames) -> anyhow::Result<Vec<String>> {
    let Some(node) = find_node(client.clone(), name).await? else { return Ok(Vec::new()) };
    let Removal { patch, what } = Removal::new(&node, &amounts(names));
    if !what.is_empty() {
        let nodes: Api<NodeView> = Api::all(client);
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(what)
}

/// What was removed from a Node, or why nothing was.
#[derive(Debug)]
pub struct Removed {
    /// Name of the Node.
    pub node: String,
    /// Such as `amount nvidia.com/gpumem`.
    pub what: kube::Result<Vec<String>>,
}

/// Looks at all Nodes once, and removes Divvy's amounts, labels, annotations and soft taints. Empty if no Node had any.
pub async fn remove_from_all(client: &Client, names: &ResourceNames) -> kube::Result<Vec<Removed>> {
    let nodes: Api<NodeView> = Api::all(client.clone());
    let mut page = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let list = within_deadline(nodes.list(&page)).await?;
        for node in list.items {
            let what = remove_all(&nodes, &node, names).await;
            if what.as_ref().map_or(true, |what| !what.is_empty()) {
                all.push(Removed { node: node.name_any(), what });
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(all),
        }
    }
}

async fn remove_all(nodes: &Api<NodeView>, node: &NodeView, names: &ResourceNames) -> kube::Result<Vec<String>> {
    let name = node.name_any();
    let params = PatchParams::default();
    let mut removed = Vec::new();
    // First, as the other patch makes another version of the Node.
    if let Some((patch, taints)) = soft_taints(node) {
        let patch = Patch::<()>::Json(serde_json::from_value(patch).map_err(kube::Error::SerdeError)?);
        within_deadline(nodes.patch(&name, &params, &patch)).await?;
        removed = taints;
    }
    // Other systems use the same names of amounts: only a Node that is marked has ours.
    let amounts = amounts(names);
    let Removal { patch, what } = Removal::new(node, if node.is_marked() { &amounts } else { &[] });
    if !what.is_empty() {
        within_deadline(nodes.patch_status(&name, &params, &Patch::Merge(&patch))).await?;
    }
    Ok([removed, what].concat())
}

fn amounts(names: &ResourceNames) -> [&ResourceName; 3] {
    [&names.memory, &names.memory_percentage, &names.cores]
}

/// A JSON patch that takes the soft taints off this very version of a Node, as the list belongs to others too, and a list of
/// them; `None` if there are none.
fn soft_taints(node: &NodeView) -> Option<(Value, Vec<String>)> {
    let is_ours = |taint: &&Taint| is_soft(&taint.key, &taint.effect);
    let (ours, others): (Vec<&Taint>, Vec<&Taint>) = node.spec.taints.iter().partition(is_ours);
    let patch = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": node.resource_version() },
        { "op": "replace", "path": "/spec/taints", "value": others },
    ]);
    (!ours.is_empty()).then(|| (patch, ours.iter().map(|taint| format!("taint {}", taint.key)).collect()))
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
        let annotations = node.metadata.annotations.as_ref();
        let labels = node.metadata.labels.as_ref();
        let annotations = annotations.unwrap_or(&nothing);
        let labels = labels.unwrap_or(&nothing);
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
