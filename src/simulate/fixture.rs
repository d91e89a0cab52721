//! Hosts, pods and workloads that tests share.

use std::sync::Arc;

use crate::cluster::Host;
use crate::trace::{TraceNode, TracePod};
use crate::workload::{Kind, Models, Part, Taints, Workload};

/// As much of compute as of memory.
pub(crate) fn even(milli: u32) -> Part {
    Part { cores: milli, memory: milli }
}

/// A host whose machine has 64 CPU cores and 256 GiB, all free, and these free thousandths of cards.
pub(crate) fn host(cards: &[u32]) -> Host {
    Host {
        machine: 0,
        model: 0,
        taints: Taints::default(),
        cpu: 64_000,
        memory: 262_144,
        cards: cards.iter().copied().map(even).collect(),
        revision: 1,
    }
}

/// A pod of so many thousandths of a CPU core, cards, and thousandths of each.
pub(crate) fn kind(cpu: u32, cards: u32, milli: u32) -> Kind {
    Kind { cpu, memory: 1024, cards, part: even(milli), models: Models::ANY, tolerates: Taints::default() }
}

/// A workload of equal machines with so many cards, and one pod of each kind.
pub(crate) fn workload(machines: usize, cards: u32, pods: &[(u32, u32, u32)]) -> Arc<Workload> {
    let node =
        |at: usize| TraceNode { name: format!("n-{at}"), cpu: 64_000, memory: 262_144, cards, model: "T4".into() };
    let pod = |(cpu, cards, milli): &(u32, u32, u32)| TracePod {
        cpu: *cpu,
        memory: 1024,
        cards: *cards,
        milli: *milli,
        ..TracePod::default()
    };
    let nodes: Vec<TraceNode> = (0..machines).map(node).collect();
    Arc::new(Workload::new(&nodes, &pods.iter().map(pod).collect::<Vec<_>>()).expect("cards and pods"))
}
