//! Requests that are expected, learned from the pods that have come so far.

use std::sync::Arc;

use divvy_index::DecayedCounts;

use crate::target::Target;
use crate::workload::Workload;

/// Pods that have come, counted as the product counts them.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By kind.
    tally: DecayedCounts<usize>,
}

/// Pods between two views of what is expected.
const PERIOD: u64 = 500;

// === impl History ===

impl History {
    /// History of a process that starts and lists the pods that are there, each a number of its kind.
    pub fn listed(kinds: impl IntoIterator<Item = usize>) -> Self {
        let mut tally = DecayedCounts::default();
        kinds.into_iter().for_each(|kind| tally.add(&kind));
        Self { tally }
    }

    /// Counts a pod that comes; returns what is expected from now on, if it is time to look.
    pub fn learn(&mut self, kind: usize, workload: &Workload) -> Option<Arc<Target>> {
        self.tally.add(&kind);
        self.tally.added().is_multiple_of(PERIOD).then(|| Arc::new(self.target(workload)))
    }

    /// Requests that are expected by all that was counted.
    pub fn target(&self, workload: &Workload) -> Target {
        let mut weights = vec![0.0; workload.kinds.len()];
        for (kind, weight) in self.tally.weights() {
            weights[*kind] = weight;
        }
        Target::weighted(&workload.kinds, &weights)
    }
}
