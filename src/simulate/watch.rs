//! Runs, seen from outside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::run::Interrupted;

/// How far all runs have come together, and whether they are to end.
#[derive(Debug, Default)]
pub struct Watch {
    pods: AtomicU64,
    is_over: AtomicBool,
}

// === impl Watch ===

impl Watch {
    /// Pods that have come so far.
    pub fn pods(&self) -> u64 {
        self.pods.load(Ordering::Relaxed)
    }

    /// Lets all runs end at their next pod.
    pub fn interrupt(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// A pod comes.
    pub(crate) fn step(&self) -> Result<(), Interrupted> {
        self.pods.fetch_add(1, Ordering::Relaxed);
        if self.is_over.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }
}
