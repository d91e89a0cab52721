//! Free GPUs of a live cluster, by what keeps its pods from them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use divvy_index::demand::{Demand, Shape};
use divvy_index::node_selection::is_tolerated;
use divvy_index::{Index, Node, Query};
use serde::Serialize;

use super::objects::{LiveNode, LivePod, requested_of_nodes};

/// Free GPUs of which this is so. Parts of GPUs count as such, by the mean of memory and compute.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Free {
    pub(super) reason: Reason,
    pub(super) gpus: f64,
}

/// Whether the pods that request GPUs could use free ones: on average over these pods, as if one more of each came. The
/// first reason counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    Usable,
    /// The GPU has too little left, or the node too few GPUs, or another model or tier is requested.
    TooLittle,
    Cpu,
    Memory,
    Taint,
    Unschedulable,
}

/// Free capacity of a node.
struct NodeCapacity<'a> {
    node: &'a LiveNode,
    /// By the Node, or by what divvy-node says of it.
    is_closed: bool,
    gpus: f64,
    cpu: u32,
    memory: u32,
}

/// Pods that are alike to the scheduler.
struct Group<'a> {
    demand: Arc<Demand>,
    pod: &'a LivePod,
    pods: u32,
}

/// The most frequent pods that are looked at.
const MOST_GROUPS: usize = 64;

// === impl Reason ===

impl Reason {
    const ALL: [Self; 6] = [Self::Usable, Self::TooLittle, Self::Cpu, Self::Memory, Self::Taint, Self::Unschedulable];

    /// For people.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::TooLittle => "too small, too few on a node, or of another model",
            Self::Cpu => "short of CPU on the node",
            Self::Memory => "short of memory on the node",
            Self::Taint => "behind taints of the node",
            Self::Unschedulable => "on a node that is cordoned or not ready",
        }
    }
}

/// Free GPUs by reason, all reasons. `index` knows GPUs and pods, and nothing of Nodes, so that it refuses none for them.
/// Without pods that request GPUs, none.
pub(super) fn free(index: &Index, nodes: &[LiveNode], pods: &[LivePod]) -> Vec<Free> {
    let capacities = capacities(index, nodes, pods);
    let groups = groups(index, pods);
    let all: f64 = groups.iter().map(|group| f64::from(group.pods)).sum();
    let names: Vec<&str> = capacities.iter().map(|capacity| &*capacity.node.name).collect();
    let mut by_reason: BTreeMap<Reason, f64> = Reason::ALL.into_iter().map(|reason| (reason, 0.0)).collect();
    for Group { demand, pod, pods } in &groups {
        let ranking = index.snapshot_for(demand).rank(&Query::new(demand, index.config()), &names, true);
        let fitting: HashSet<usize> = ranking.fitting.iter().map(|(node, _)| node.name).collect();
        for (at, capacity) in capacities.iter().enumerate() {
            let reason = capacity.reason(fitting.contains(&at), pod);
            *by_reason.entry(reason).or_default() += capacity.gpus * f64::from(*pods) / all;
        }
    }
    let free = by_reason.into_iter().map(|(reason, gpus)| Free { reason, gpus });
    free.filter(|_| !groups.is_empty()).collect()
}

/// Nodes with GPUs.
fn capacities<'a>(index: &Index, nodes: &'a [LiveNode], pods: &[LivePod]) -> Vec<NodeCapacity<'a>> {
    let requested = requested_of_nodes(pods.iter());
    let snapshot = index.snapshot();
    let with_gpus: HashMap<&str, &Node> = snapshot.nodes().map(|node| (&*node.name, &**node)).collect();
    let reported = nodes.iter().filter_map(|node| Some((node, *with_gpus.get(&*node.name)?)));
    reported.map(|(node, reported)| NodeCapacity::new(node, reported, node.without(&requested))).collect()
}

/// Pods that request GPUs, the most frequent first.
fn groups<'a>(index: &Index, pods: &'a [LivePod]) -> Vec<Group<'a>> {
    let mut groups: HashMap<(Shape, u32, u32, String), Group<'a>> = HashMap::new();
    for pod in pods {
        let Ok(Some(demand)) = Demand::read(&pod.view, index.config()) else { continue };
        let key = (demand.shape(), demand.requests.cpu_milli, pod.memory, format!("{:?}", pod.tolerations));
        groups.entry(key).or_insert_with(|| Group { demand: demand.into(), pod, pods: 0 }).pods += 1;
    }
    let mut groups: Vec<Group<'a>> = groups.into_values().collect();
    groups.sort_by_key(|group| (Reverse(group.pods), Arc::clone(&group.demand.uid)));
    groups.truncate(MOST_GROUPS);
    groups
}

// === impl NodeCapacity ===

impl<'a> NodeCapacity<'a> {
    /// What is left of a node's CPU and memory, and of the GPUs that it reports.
    fn new(node: &'a LiveNode, reported: &Node, (cpu, memory): (u32, u32)) -> Self {
        let is_closed = node.is_closed || reported.closed.is_some();
        Self { node, is_closed, gpus: reported.state.free_parts(), cpu, memory }
    }

    fn reason(&self, fits_gpus: bool, pod: &LivePod) -> Reason {
        let reasons = [
            (self.is_closed, Reason::Unschedulable),
            (self.node.taints.iter().any(|taint| !is_tolerated(taint, &pod.tolerations)), Reason::Taint),
            (!fits_gpus, Reason::TooLittle),
            (self.cpu < pod.view.requests.cpu_milli, Reason::Cpu),
            (self.memory < pod.memory, Reason::Memory),
        ];
        reasons.into_iter().find(|(is_so, _)| *is_so).map_or(Reason::Usable, |(_, reason)| reason)
    }
}
