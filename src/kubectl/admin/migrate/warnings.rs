//! What a report leaves out, or may show wrongly, for lack of a setting.

use std::collections::BTreeSet;

use divvy_dialects::Dialect;
use kube::ResourceExt as _;

use super::read::{Found, Objects};
use super::report::resources;
use crate::admin::dialects::wrong_unit;
use crate::text::listed;
use crate::view::inspect::NodeView;

/// Replicas of NVIDIA's device plugin.
const REPLICAS: &str = "nvidia.com/gpu.shared";
/// Most nodes, or workloads, that are named.
const MOST: usize = 3;

/// What `--dialects` should say.
pub(super) fn warnings(objects: &Objects, dialects: &[Dialect], foreign: &BTreeSet<String>) -> Vec<String> {
    let unit = wrong_unit(dialects, &objects.nodes)
        .map(|wrong| format!("{}: pass {{name: gpushare, unit: {}}} in --dialects", wrong.found, wrong.right));
    let replicas = (!foreign.contains(REPLICAS)).then(|| left_out(objects)).flatten();
    unit.into_iter().chain(replicas).collect()
}

/// Nodes and pods with replicas, whose dialect isn't among the given ones.
fn left_out(objects: &Objects) -> Option<String> {
    let has_replicas = |node: &&NodeView| node.capacity(REPLICAS).is_some_and(|number| number != "0");
    let nodes: BTreeSet<String> = objects.nodes.iter().filter(has_replicas).map(NodeView::name_any).collect();
    let names_replicas = |found: &&Found| found.pod.containers.iter().flat_map(resources).any(|name| name == REPLICAS);
    let workload = |Found { kind, namespace, name, .. }: &Found| {
        let slash = if namespace.is_empty() { "" } else { "/" };
        format!("{} {namespace}{slash}{name}", kind.to_lowercase())
    };
    let workloads: BTreeSet<String> = objects.pods.iter().filter(names_replicas).map(workload).collect();
    let found = [("nodes", nodes), ("workloads", workloads)].into_iter().filter(|(_, names)| !names.is_empty());
    let found: Vec<String> =
        found.map(|(what, names)| format!("{what} {}", listed(&Vec::from_iter(names), MOST))).collect();
    (!found.is_empty()).then(|| {
        format!(
            "{REPLICAS} ({}) is left out, as it isn't known how many replicas a GPU has: pass {{name: time-slicing, \
             replicas: N}} in --dialects, beside the other systems; the label nvidia.com/gpu.replicas of a Node may say N",
            found.join("; ")
        )
    })
}
