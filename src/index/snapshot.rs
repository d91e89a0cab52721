//! Snapshot: the nodes at one moment, and what is asked of them. It never changes, so its readers wait for nobody but, where
//! they rank nodes, for the score cache.
//!
//! What isn't the nodes' but the pod's that is asked about (quotas, its own reservation, others of its group) is taken at the
//! same moment, for this one pod.

mod cliques;
mod rank;
mod refusals;

use std::sync::{Arc, Mutex, MutexGuard};

use divvy_placement::ExpectedRequests;

use crate::demand::{Exceeded, SchedulingConfig};
use crate::fit::Query;
use crate::nodes::{Node, NodeRef, View};
use crate::ranking::CachedScores;
use crate::unpoisoned;

pub use rank::Ranking;
pub use refusals::Refusal;

/// The cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) config: Arc<SchedulingConfig>,
    pub(crate) view: View,
    pub(crate) scores: Arc<Mutex<CachedScores>>,
    /// Pods whose requests had been counted.
    pub(crate) counted_pods: u64,
    pub(crate) pod: PodContext,
}

/// What is known, beside the nodes, of the pod that a snapshot was taken for; nothing where it was taken for none.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodContext {
    /// Models of which it may have no GPUs now, by its namespace's `GpuQuota`s; usually none.
    pub(crate) exceeded: Vec<Exceeded>,
    /// Why it can have no GPU before others of its namespace end, whichever models nodes may come to have.
    pub(crate) used_up: Option<Arc<str>>,
    /// Place of the node where it has a reservation.
    pub(crate) reserved_at: Option<u32>,
    /// Others of its group, if NVLink reaches several nodes somewhere.
    pub(crate) group: Option<GroupOnNodes>,
    /// What its group waits for as a whole, if it does.
    pub(crate) group_waits: Option<Arc<str>>,
}

/// Where the pods of a group are.
#[derive(Clone, Debug)]
pub(crate) struct GroupOnNodes {
    /// Nodes where others of the group are, or have GPUs reserved.
    pub(crate) placed: Vec<String>,
    /// How many of the group have no node yet, the pod included.
    pub(crate) waiting: usize,
}

/// Nodes that are scored in advance in one go, while a call of the scheduler may wait for the lock.
const ASKED_AT_ONCE: usize = 64;
/// Nodes whose allocatable capacity is computed in advance in one go.
const LOOKED_AT_ONCE: usize = 2;

// === impl Snapshot ===

impl Snapshot {
    /// Models of which the pod may have no GPUs now, by its namespace's `GpuQuota`s; usually none.
    pub fn exceeded(&self) -> &[Exceeded] {
        &self.pod.exceeded
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.view.find(name)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.view.nodes()
    }

    /// Requests that are expected.
    pub fn expected(&self) -> &Arc<ExpectedRequests> {
        self.view.expected()
    }

    /// Pods whose requests had been counted.
    pub fn counted_pods(&self) -> u64 {
        self.counted_pods
    }

    /// Number of soft taints that a node is to have, so that kube-scheduler puts pods without GPUs where they take no CPU that
    /// expected requests will need. `None`: no `GpuNode` of this name.
    pub fn soft_taints(&self, name: &str) -> Option<u32> {
        let node = self.node(name)?;
        Some(self.scores().scorer.soft_taints(&self.view, node))
    }

    /// The score cache, for which others wait meanwhile. Nothing that is called with it can lock the state, as no snapshot
    /// knows the index.
    fn scores(&self) -> MutexGuard<'_, CachedScores> {
        unpoisoned(self.scores.lock())
    }

    /// Scores nodes that have changed for the shapes of pods that have come lately, so that the scheduler needn't wait for
    /// it. Takes up to a microsecond for each node and shape; the lock is released between a few nodes and the next.
    pub fn score_in_advance(&self) {
        let view = &self.view;
        let samples = self.scores().samples(view);
        if samples.is_empty() {
            return;
        }
        let nodes: Vec<NodeRef> = view.all().collect();
        for sample in samples {
            let query = Query::new(&sample, &self.config);
            for some in nodes.chunks(ASKED_AT_ONCE) {
                self.scores().score(&query, view, some);
            }
            let best = self.scores().best_scored(&query, view, &nodes);
            for some in best.chunks(LOOKED_AT_ONCE) {
                self.scores().scorer.look_further(&query, view, some);
            }
        }
    }
}
