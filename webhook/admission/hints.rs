//! What the webhook says about nodes: a prediction at the moment of creation. The scheduler asks again, and the node
//! decides.

use std::fmt;

use divvy_contract::ContainerClaim;
use divvy_contract::annotation::{NodeFit, Preferences};
use serde_json::{Value, json};

use super::patch::Patch;
use super::pod::Pod;

/// What a pod needs of a node's cards.
#[derive(Clone, Debug, PartialEq)]
pub struct PodDemand {
    /// Where it is created.
    pub namespace: String,
    /// Its name, or the beginning of it where the API server makes one up; empty for the pods of a template.
    pub name: String,
    /// In admission order, one for each init and app container.
    pub claims: Vec<ContainerClaim>,
    /// What its annotations ask for.
    pub preferences: Preferences,
}

/// Which nodes could take a pod, by what the index knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// These can now: the best few, best first; at least one.
    Now(Vec<String>),
    /// None can now; some could if their cards were free.
    Later(Shortage),
    /// None could ever, as the nodes are today.
    Never(Shortage),
    /// The index isn't filled yet, or telling would take too long: nothing is said.
    Unknown,
}

/// Why no node can take a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Nodes with cards.
    pub nodes: usize,
    /// How many of them were asked why.
    pub asked: usize,
    /// What those said, the most frequent first.
    pub obstacles: Vec<Obstacle>,
}

/// Why some nodes can't take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// How many nodes.
    pub nodes: usize,
    /// What they lack, such as "40Gi memory wanted, at most 12Gi free".
    pub reason: String,
}

/// Where preferred terms stand, from the outside in.
const AFFINITY: [&str; 3] = ["/spec/affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"];

// === impl Fit ===

impl Fit {
    /// `divvy.dev/node-fit`.
    pub(super) fn annotation(&self) -> Option<NodeFit> {
        match self {
            Self::Now(nodes) => Some(NodeFit { nodes: nodes.clone(), reason: None }),
            Self::Later(_) | Self::Never(_) => Some(NodeFit { nodes: Vec::new(), reason: Some(self.to_string()) }),
            Self::Unknown => None,
        }
    }

    /// What is shown by kubectl; nothing if all is well.
    pub(super) fn warning(&self) -> Option<String> {
        matches!(self, Self::Later(_) | Self::Never(_)).then(|| self.to_string())
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

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(nodes) => write!(f, "best now: {}", nodes.join(", ")),
            Self::Unknown => f.write_str("not known"),
            Self::Later(shortage) => write!(f, "no node can run this now{shortage}"),
            Self::Never(shortage) => write!(f, "no node could ever run this{shortage}"),
        }
    }
}

// === impl Shortage ===

/// What follows on a sentence that nothing fits.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, asked, obstacles } = self;
        if *nodes == 0 {
            return f.write_str(": no node has reported cards");
        }
        if asked < nodes {
            write!(f, ", say {asked} that were asked of {nodes} nodes")?;
        }
        for (at, Obstacle { nodes, reason }) in obstacles.iter().enumerate() {
            let (sign, plural) = (if at == 0 { ':' } else { ';' }, if *nodes == 1 { "" } else { "s" });
            write!(f, "{sign} {nodes} node{plural}: {reason}")?;
        }
        Ok(())
    }
}
