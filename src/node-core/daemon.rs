//! The daemon without its sockets: one allocator, one source of pods.

mod calls;
mod candidates;
mod ending;
mod recovery;

use std::sync::Arc;
use std::time::Duration;

pub use self::ending::Admissions;
use self::ending::CallCount;
use crate::allocator::{Allocator, Refusal, SharedAllocator, lock};
use crate::pod::Pod;
use crate::ports::{CoreMetrics, PodSource, PodSourceError};

/// Serves the kubelet's calls and keeps the ledger in line with the kubelet.
///
/// Methods are in `calls`, `candidates`, `ending` and `recovery`. Each asks
/// the source of pods first and decides afterwards, under the allocator's lock, which is never held while something is
/// waited for.
#[derive(Debug)]
pub struct Daemon<S> {
    pub(crate) allocator: SharedAllocator,
    pub(crate) source: S,
    pub(crate) metrics: Arc<dyn CoreMetrics>,
    /// Quiet period (`kubeletSettleTime`): a kubelet's list is whole once the kubelet is older than that and no pod has come
    /// onto its list for so long.
    pub(crate) kubelet_settle_time: Duration,
    /// Calls by which the kubelet admits pods.
    pub(crate) calls: CallCount,
}

impl<S: PodSource> Daemon<S> {
    /// A daemon over this allocator and this source of pods.
    pub fn new(
        allocator: SharedAllocator,
        source: S,
        metrics: Arc<dyn CoreMetrics>,
        kubelet_settle_time: Duration,
    ) -> Self {
        Self { allocator, source, metrics, kubelet_settle_time, calls: CallCount::default() }
    }

    /// The allocator behind it.
    pub fn allocator(&self) -> &SharedAllocator {
        &self.allocator
    }

    /// The source of pods behind it.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Brings the ledger in line as `reconcile` does, logs what that changed, and removes the directories of holdings that ended.
    pub(crate) fn apply(
        &self,
        reconcile: impl FnOnce(&mut Allocator) -> Result<Vec<String>, Refusal>,
    ) -> Result<(), Refusal> {
        let (notes, ended, containers) = {
            let mut allocator = lock(&self.allocator);
            let notes = reconcile(&mut allocator)?;
            (notes, allocator.take_ended(), Arc::clone(allocator.containers()))
        };
        for note in notes {
            tracing::info!("ledger reconciled with kubelet: {note}");
        }
        if !ended.is_empty() {
            containers.remove(ended);
        }
        Ok(())
    }
}

/// Pods among which the one under admission is, and how they became known.
#[derive(Debug)]
pub(crate) struct Candidates {
    /// The pods.
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Why they aren't the kubelet's list, if they aren't.
    pub(crate) unlisted: Option<PodSourceError>,
    /// Why PodResources didn't tell which of them the kubelet has rejected, if it was asked in vain.
    pub(crate) untold: Option<PodSourceError>,
}

#[cfg(test)]
mod tests;
