//! What is expected, learned from the pods that have come so far.

use std::sync::Arc;

use divvy_index::Tally;

use crate::target::Target;
use crate::workload::Workload;

/// Pods that have come, counted as the product counts them.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By kind.
    tally: Tally<usize>,
}

/// Pods between two views of what is expected.
const PERIOD: u64 = 500;

// === impl History ===

impl History {
    /// A pod comes; what is expected from now on, if it is time to look.
    pub fn learn(&mut self, kind: usize, workload: &Workload) -> Option<Arc<Target>> {
        self.tally.add(&kind);
        if !self.tally.added().is_multiple_of(PERIOD) {
            return None;
        }
        let mut weights = vec![0.0; workload.kinds.len()];
        for (kind, weight) in self.tally.weights() {
            weights[*kind] = weight;
        }
        Some(Arc::new(Target::weighted(&workload.kinds, &weights)))
    }
}
