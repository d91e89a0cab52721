//! What a daemon has to know before it ends: whether the kubelet is admitting pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Daemon;
use crate::allocator::{Refusal, lock};
use crate::pod::Pod;
use crate::ports::{PodSource, PodSourceError};

/// What the kubelet's list and its calls tell of admissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admissions {
    /// All pods on the list.
    pub pods: Vec<Arc<Pod>>,
    /// Those of them, by namespace and name, that may still ask for cards.
    pub waiting: Vec<String>,
    /// Calls for cards or units since the daemon started, answered or not.
    pub calls: u64,
    /// Whether one of them hasn't been answered.
    pub is_answering: bool,
}

/// Calls by which the kubelet admits pods: those that have begun and those that are over, answered or given up.
#[derive(Debug, Default)]
pub(crate) struct CallCount {
    begun: AtomicU64,
    over: AtomicU64,
}

/// A call that hasn't been answered, until it is dropped.
#[derive(Debug)]
pub(crate) struct CallInFlight<'a>(&'a AtomicU64);

// === impl CallCount ===

impl CallCount {
    /// Counts a call.
    pub(crate) fn begin(&self) -> CallInFlight<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        CallInFlight(&self.over)
    }
}

impl Drop for CallInFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// === impl Daemon ===

impl<S: PodSource> Daemon<S> {
    /// What the kubelet is doing about new pods, by its list and its calls.
    pub async fn admissions(&self) -> Result<Admissions, Refusal> {
        let pods = self.reconcile().await?;
        let waiting = lock(&self.allocator).waiting(&pods);
        let [over, calls] = [&self.calls.over, &self.calls.begun].map(|count| count.load(Ordering::Relaxed));
        Ok(Admissions { pods, waiting, calls, is_answering: over != calls })
    }

    /// Pods, by namespace and name, that may still ask for cards by the API server's list: also those that the kubelet hasn't
    /// taken up yet. None without an API server.
    pub async fn bound_and_waiting(&self) -> Result<Vec<String>, PodSourceError> {
        let pods = self.source.bound_pods().await?.unwrap_or_default();
        Ok(lock(&self.allocator).waiting(&pods))
    }
}
