//! Divvy's policy when it isn't told what will come: it counts the pods that have come, as the webhook does.

use std::collections::HashMap;
use std::sync::Arc;

use divvy_api::annotation::PolicyName;
use divvy_index::DecayedCounts;
use divvy_simulate::Rng;
use divvy_simulate::cluster::{Cluster, Place};
use divvy_simulate::policy::{Arrival, Policy, Product, Scheduler};
use divvy_simulate::target::Target;
use divvy_simulate::workload::Workload;

/// Least fragmentation, by the requests of the pods that have come so far.
pub(crate) struct Learning {
    policy: Product,
    workload: Arc<Workload>,
    /// By kind.
    counts: DecayedCounts<usize>,
    /// Kinds of the pods that are there, by serial number.
    placed: HashMap<u64, usize>,
    /// Pods after which the process that learns is restarted, and lists those that are there.
    restarts_after: Option<u64>,
}

/// Pods between two updates of what is expected.
const PERIOD: u64 = 500;

// === impl Learning ===

impl Learning {
    /// A process that has just started, with nobody there.
    pub(crate) fn new(
        workload: &Arc<Workload>,
        cluster: &Cluster,
        scheduler: Scheduler,
        restarts_after: Option<u64>,
    ) -> Self {
        let policy = Product::new(PolicyName::LeastFragmentation, workload, cluster, &Target::default(), scheduler);
        let workload = Arc::clone(workload);
        Self { policy, workload, counts: DecayedCounts::default(), placed: HashMap::new(), restarts_after }
    }

    /// Counts the pods that are there, in the order in which the API server lists them: that of names with random suffixes.
    fn restart(&mut self) {
        let mut listed: Vec<(u64, usize)> = self.placed.iter().map(|(serial, kind)| (*serial, *kind)).collect();
        listed.sort_unstable_by_key(|(serial, _)| serial.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.counts = DecayedCounts::default();
        for (_, kind) in &listed {
            self.counts.add(kind);
        }
        self.expect();
    }

    fn expect(&mut self) {
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
        self.counts.add(&pod.kind);
        if self.counts.added().is_multiple_of(PERIOD) {
            self.expect();
        }
        let place = self.policy.choose(cluster, pod, rng)?;
        self.placed.insert(pod.serial, pod.kind);
        Some(place)
    }

    fn ended(&mut self, pod: Arrival) {
        self.placed.remove(&pod.serial);
        self.policy.ended(pod);
    }
}
