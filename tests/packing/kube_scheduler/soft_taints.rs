//! Soft taints as the webhook writes them: in rounds, and not too often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use divvy_simulate::cluster::Cluster;
use divvy_simulate::extender::Extender;

/// Taints of effect `PreferNoSchedule` on each node, which pods without GPUs don't tolerate.
#[derive(Clone, Debug, Default)]
pub struct SoftTaints {
    pods_per_second: u64,
    /// Pods that have come.
    clock: u64,
    /// By host.
    nodes: Vec<Node>,
    /// Writes of any node so far.
    writes: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Revision of the host for which `wanted` holds; 0: none.
    revision: u32,
    wanted: u32,
    written: u32,
    /// Time after which it may be written again.
    due: u64,
}

/// Seconds between rounds (`webhook/soft_taints.rs`: `PERIOD`).
const PERIOD: u64 = 5;
/// Seconds from a write of a node within which no round writes it. A write ends a little after its round began, so that the
/// round just then doesn't either.
const PAUSE: u64 = 30;
/// Most nodes written in one round.
const MOST: usize = 50;

// === impl SoftTaints ===

impl SoftTaints {
    /// None yet, to be written while so many pods come in a second.
    pub fn at(pods_per_second: u32) -> Self {
        Self { pods_per_second: pods_per_second.into(), ..Self::default() }
    }

    /// Adds up its writes in `writes`, as others may.
    #[must_use]
    pub fn counted(self, writes: Arc<AtomicU64>) -> Self {
        Self { writes, ..self }
    }

    /// Number of taints on a host.
    pub(super) fn on(&self, host: usize) -> u32 {
        self.nodes.get(host).map_or(0, |node| node.written)
    }

    /// Has all nodes looked at anew, as other requests are expected.
    pub(super) fn reconsider(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.revision = 0);
    }

    /// Writes what is due, after a pod has come.
    pub(super) fn write(&mut self, cluster: &Cluster, extender: &Extender) {
        self.clock += 1;
        if !self.clock.is_multiple_of(PERIOD * self.pods_per_second) {
            return;
        }
        self.nodes.resize(cluster.hosts().len(), Node::default());
        let mut written = 0;
        for (at, (node, host)) in self.nodes.iter_mut().zip(cluster.hosts()).enumerate() {
            if node.revision != host.revision {
                (node.revision, node.wanted) = (host.revision, extender.soft_taints(at));
            }
            if node.wanted != node.written && node.due < self.clock && written < MOST {
                (node.written, node.due) = (node.wanted, self.clock + PAUSE * self.pods_per_second);
                written += 1;
                self.writes.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
