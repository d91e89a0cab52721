//! What is expected, learned from the pods that have come so far.

use std::sync::Arc;

use crate::target::Target;
use crate::workload::Workload;

/// Pods that have come, the later ones weighing more.
#[derive(Clone, Debug)]
pub struct History {
    /// By kind.
    weights: Vec<f64>,
    /// Of the next pod.
    next: f64,
    pods: u32,
}

/// Pods between two views of what is expected.
const PERIOD: u32 = 500;
/// Pods after which one weighs half as much.
const HALF_LIFE: f64 = 4000.0;

// === impl History ===

impl History {
    /// Nothing has come yet.
    pub fn new(workload: &Workload) -> Self {
        Self { weights: vec![0.0; workload.kinds.len()], next: 1.0, pods: 0 }
    }

    /// A pod comes; what is expected from now on, if it is time to look.
    pub fn learn(&mut self, kind: usize, workload: &Workload) -> Option<Arc<Target>> {
        self.weights[kind] += self.next;
        self.next *= (1.0 / HALF_LIFE).exp2();
        self.pods += 1;
        if !self.pods.is_multiple_of(PERIOD) {
            return None;
        }
        // Amounts stay small however long it goes on.
        let scale = self.next;
        self.weights.iter_mut().for_each(|weight| *weight /= scale);
        self.next = 1.0;
        Some(Arc::new(Target::weighted(&workload.kinds, &self.weights)))
    }
}
