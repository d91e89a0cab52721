//! A policy of Divvy's when it isn't told what will come: it counts the pods that have come, as the webhook does.

use std::collections::HashMap;
use std::sync::Arc;

use divvy_index::{DecayedCounts, next_distribution};
use divvy_simulate::Rng;
use divvy_simulate::cluster::{Cluster, Place};
use divvy_simulate::policy::Policy;
use divvy_simulate::target::Target;
use divvy_simulate::workload::{Arrival, Workload};

/// A policy that expects the requests of the pods that have come so far.
pub struct Learning {
    policy: Box<dyn Policy>,
    workload: Arc<Workload>,
    /// By kind.
    counts: DecayedCounts<usize>,
    /// Kinds of the pods that are there, by serial number.
    placed: HashMap<u64, usize>,
    /// Pods after which the process that learns is restarted, and lists those that are there.
    restarts_after: Option<u64>,
    /// Requests with which it is told again what is expected.
    due: u64,
}

// === impl Learning ===

impl Learning {
    /// A process that has just started, with nobody there, behind a scheduler that was told nothing.
    pub fn new(workload: &Arc<Workload>, policy: Box<dyn Policy>, restarts_after: Option<u64>) -> Self {
        let workload = Arc::clone(workload);
        let (counts, placed) = (DecayedCounts::default(), HashMap::new());
        Self { policy, workload, counts, placed, restarts_after, due: 0 }
    }

    /// Counts the pods that are there, in the order in which the API server lists them: that of names with random suffixes.
    fn restart(&mut self) {
        let mut listed: Vec<(u64, usize)> = self.placed.iter().map(|(serial, kind)| (*serial, *kind)).collect();
        listed.sort_unstable_by_key(|(serial, _)| serial.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.counts = DecayedCounts::default();
        for (_, kind) in &listed {
            self.count(*kind);
        }
        self.expect();
    }

    /// Counts a pod that asks for cards.
    fn count(&mut self, kind: usize) {
        if self.workload.kinds[kind].cards > 0 {
            self.counts.add(&kind);
        }
    }

    fn expect(&mut self) {
        self.due = next_distribution(self.counts.added());
        let mut weights = vec![0.0; self.workload.kinds.len()];
        for (kind, weight) in self.counts.weights() {
            weights[*kind] = weight;
        }
        self.policy.expect(&Target::weighted(&self.workload.kinds, &weights));
    }
}

impl Policy for Learning {
    fn choose(&mut self, cluster: &Cluster, pod: Arrival, rng: &mut Rng) -> Option<Place> {
        if self.restarts_after.is_some_and(|pods| pod.serial > 0 && pod.serial.is_multiple_of(pods)) {
            self.restart();
        }
        self.count(pod.kind);
        if self.counts.added() >= self.due {
            self.expect();
        }
        let place = self.policy.choose(cluster, pod, rng)?;
        self.placed.insert(pod.serial, pod.kind);
        Some(place)
    }

    fn tick(&mut self, cluster: &Cluster) {
        self.policy.tick(cluster);
    }

    fn ended(&mut self, pod: Arrival) {
        self.placed.remove(&pod.serial);
        self.policy.ended(pod);
    }
}
