//! Hints about nodes: a prediction at the moment of creation. The scheduler asks again, and the node
//! decides.

use divvy_api::ContainerRequest;
use divvy_api::annotation::{NodeFit, Preferences};
use serde_json::{Value, json};

use super::patch::Patch;
use super::pod::Pod;

/// What a pod needs of a node's GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct PodDemand {
    /// Where it is created.
    pub namespace: String,
    /// The pod's name, or the beginning of it where the API server makes one up; empty for the pods of a template.
    pub name: String,
    /// In admission order, one for each init and app container.
    pub requests: Vec<ContainerRequest>,
    /// What its annotations ask for.
    pub preferences: Preferences,
}

/// Which nodes could take a pod, by what the index knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Nodes that can take it now: the best few, best first; at least one.
    Now(Vec<String>),
    /// No node can now, or none ever could: which of both and why, in a sentence.
    Nowhere(String),
    /// Unknown: the watches haven't synced yet, or the search would take too long.
    Unknown,
}

/// Where preferred terms stand, from the outside in.
const AFFINITY: [&str; 3] = ["/spec/affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"];

// === impl Fit ===

impl Fit {
    /// `divvy.dev/node-fit`.
    pub(super) fn annotation(&self) -> Option<NodeFit> {
        match self {
            Self::Now(nodes) => Some(NodeFit { nodes: nodes.clone(), reason: None }),
            Self::Nowhere(reason) => Some(NodeFit { nodes: Vec::new(), reason: Some(reason.clone()) }),
            Self::Unknown => None,
        }
    }

    /// Warning that kubectl prints; none if a node fits.
    pub(super) fn warning(&self) -> Option<String> {
        match self {
            Self::Nowhere(reason) => Some(reason.clone()),
            Self::Now(_) | Self::Unknown => None,
        }
    }

    /// Prefers the hinted nodes, the best most. Terms that are there already, from an earlier call, aren't repeated.
    pub(super) fn prefer(&self, pod: &Pod, patch: &mut Patch) {
        let Self::Now(nodes) = self else { return };
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
}

/// A preferred term for one node. The API server takes one name a term; a node's hostname label may be another.
fn term(node: &str, weight: u32) -> Value {
    let name = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    json!({ "weight": weight, "preference": { "matchFields": [name] } })
}
