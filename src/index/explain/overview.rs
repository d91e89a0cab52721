//! Every node as the index has it: the answer of `/inspect`.

use divvy_api::{Card, Memory};
use divvy_placement::Held;
use serde::Serialize;

use crate::explain::answer::{Part, host_memory};
use crate::nodes::Node;
use crate::snapshot::Snapshot;

/// A node with its GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverview {
    /// Name of the node.
    pub name: String,
    /// Why it takes no pods, if it doesn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Isolation tier of its shares, at least.
    pub tier: String,
    /// Host memory in MiB for what isn't on the GPUs, where the node oversubscribes memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_memory_mi: Option<Part>,
    /// Revision of the ledger that is counted here.
    pub ledger_revision: u64,
    /// GPUs, with reservations on top of what the ledger shows.
    pub cards: Vec<CardOverview>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardOverview {
    /// UUID of the GPU.
    pub uuid: String,
    /// Product name.
    pub model: String,
    /// Whether it takes new pods.
    pub healthy: bool,
    /// MiB that may be reserved.
    pub memory_mi: u64,
    /// MiB that are held or reserved.
    pub held_memory_mi: u64,
    /// MiB of host memory that are held or reserved in addition, where its memory is oversubscribed.
    #[serde(skip_serializing_if = "Memory::is_zero")]
    pub held_host_memory_mi: Memory,
    /// Percent of compute that may be reserved.
    pub cores: u32,
    /// Percent of compute that is held or reserved.
    pub held_cores: u32,
    /// Whether one pod has it for itself.
    pub exclusive: bool,
    /// Number of pods that hold or have reserved shares.
    pub pods: u32,
}

// === impl Snapshot ===

impl Snapshot {
    /// All nodes by name.
    pub fn overview(&self) -> Vec<NodeOverview> {
        let mut nodes: Vec<NodeOverview> = self.nodes().map(|node| NodeOverview::new(node)).collect();
        nodes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        nodes
    }
}

// === impl NodeOverview ===

impl NodeOverview {
    fn new(node: &Node) -> Self {
        Self {
            name: node.name.to_string(),
            closed: node.closed.as_ref().map(ToString::to_string),
            tier: node.tier.to_string(),
            host_memory_mi: host_memory(&node.state),
            ledger_revision: node.ledger_revision,
            cards: node.state.each().map(|(card, held)| CardOverview::new(card, held)).collect(),
        }
    }
}

// === impl CardOverview ===

impl CardOverview {
    fn new(card: &Card, held: &Held) -> Self {
        Self {
            uuid: card.id.to_string(),
            model: card.model.to_string(),
            healthy: card.is_healthy(),
            memory_mi: card.memory_capacity().as_mib(),
            held_memory_mi: held.memory.as_mib(),
            held_host_memory_mi: held.host,
            cores: card.cores_capacity().units(),
            held_cores: held.cores.units(),
            exclusive: held.exclusive,
            pods: held.pods,
        }
    }
}
