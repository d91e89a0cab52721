//! The daemon without its sockets: one allocator, one source of pods.

use std::sync::Arc;
use std::time::Duration;

use crate::allocator::{Allocator, Refusal, SharedAllocator, lock};
use crate::pod::Pod;
use crate::ports::PodSource;

/// What serves the kubelet's calls and keeps the ledger in line with the kubelet.
///
/// Its methods stand where their story is told: `calls`, `candidates` and `recovery`. Each asks
/// the source of pods first and decides afterwards, under the allocator's lock, which is never held while something is
/// waited for.
#[derive(Debug)]
pub struct Daemon<S> {
    pub(crate) allocator: SharedAllocator,
    pub(crate) source: S,
    /// A list of a kubelet older than that is whole if no pod has come onto it for so long.
    pub(crate) settle_time: Duration,
}

impl<S: PodSource> Daemon<S> {
    /// A daemon over this allocator and this source of pods; `settle_time` as configured (`kubeletSettleTime`).
    pub fn new(allocator: SharedAllocator, source: S, settle_time: Duration) -> Self {
        Self { allocator, source, settle_time }
    }

    /// The allocator behind it.
    pub fn allocator(&self) -> &SharedAllocator {
        &self.allocator
    }

    /// The source of pods behind it.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Pods, by namespace and name, that may still ask for cards by the kubelet's list.
    pub async fn waiting(&self) -> Result<Vec<String>, Refusal> {
        let pods = self.reconcile().await?;
        Ok(lock(&self.allocator).waiting(&pods))
    }

    /// Brings the ledger in line as `reconcile` does, logs what that changed, and has removed what is over with it.
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

/// Pods among which the one under admission is.
#[derive(Debug)]
pub(crate) struct Candidates {
    /// Everything that is known of them.
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Why they aren't the kubelet's list, if they aren't.
    pub(crate) unlisted: Option<crate::ports::PodSourceError>,
}
