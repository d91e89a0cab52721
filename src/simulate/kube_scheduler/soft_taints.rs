//! Soft taints as the webhook writes them: some time after a node has changed, and not too often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cluster::Cluster;
use crate::extender::Extender;

/// Taints of effect `PreferNoSchedule` on each node, which pods without GPUs don't tolerate.
#[derive(Clone, Debug, Default)]
pub struct SoftTaints {
    /// Pods that come between two writes of a node at least.
    pause: u64,
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
    /// Time from which it may be written again.
    due: u64,
}

// === impl SoftTaints ===

impl SoftTaints {
    /// None yet, to be written no sooner than when so many pods have come since the last time.
    pub fn every(pause: u64) -> Self {
        Self { pause, ..Self::default() }
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
        self.nodes.resize(cluster.hosts().len(), Node::default());
        for (at, (node, host)) in self.nodes.iter_mut().zip(cluster.hosts()).enumerate() {
            if node.revision != host.revision {
                (node.revision, node.wanted) = (host.revision, extender.soft_taints(at));
            }
            if node.wanted != node.written && node.due <= self.clock {
                (node.written, node.due) = (node.wanted, self.clock + self.pause);
                self.writes.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
