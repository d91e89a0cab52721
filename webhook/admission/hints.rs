//! Hints about nodes: a prediction at the moment of creation. The scheduler asks again, and the node
//! decides.

use std::sync::Arc;

use divvy_api::annotation::NodeFit;
use divvy_index::Feasibility;
use serde_json::{Value, json};

use super::patch::Patch;
use super::pod::Pod;

/// Where preferred terms stand, from the outside in.
const AFFINITY: [&str; 3] = ["/spec/affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"];

/// `divvy.dev/node-fit`; `None` while it isn't known which nodes fit.
pub(super) fn annotation(fit: &Feasibility) -> Option<NodeFit> {
    let reason = fit.refusal();
    let nodes: Vec<String> = fit.best.iter().map(ToString::to_string).collect();
    (reason.is_some() || !nodes.is_empty()).then_some(NodeFit { nodes, reason })
}

/// Prefers the hinted nodes, the best most. Terms that are there already, from an earlier call, aren't repeated.
pub(super) fn prefer(nodes: &[Arc<str>], pod: &Pod, patch: &mut Patch) {
    let terms: Vec<Value> = nodes.iter().zip((1..=100).rev()).map(|(node, weight)| term(node, weight)).collect();
    let node_affinity = pod.affinity().map(|affinity| affinity.node_affinity.as_ref());
    let present = node_affinity.flatten().and_then(|affinity| affinity.preferred.as_ref());
    let terms: Vec<Value> =
        terms.into_iter().filter(|term| present.is_none_or(|present| !present.contains(term))).collect();
    if terms.is_empty() {
        return;
    }
    let [outer, node, preferred] = AFFINITY;
    match node_affinity {
        None => patch.add(outer, json!({ node: { preferred: terms } })),
        Some(None) => patch.add(&format!("{outer}/{node}"), json!({ preferred: terms })),
        Some(Some(_)) => patch.append(&format!("{outer}/{node}/{preferred}"), present.is_some(), terms),
    }
}

/// A preferred term for one node. The API server takes one name a term; a node's hostname label may be another.
fn term(node: &str, weight: u32) -> Value {
    let name = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    json!({ "weight": weight, "preference": { "matchFields": [name] } })
}
