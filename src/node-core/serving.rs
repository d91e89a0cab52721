//! Whether pods can be served at all: what a call needs besides a GPU.

use std::fmt;

use crate::allocator::{Allocator, Refusal, lock};
use crate::daemon::Daemon;
use crate::ports::{PodSource, PodSourceError};

/// Why no pod can be served now, whatever it requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingProblem {
    /// What is missing.
    pub kind: Missing,
    /// What failed, and the remedy.
    pub text: String,
}

/// What every call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A list of pods: neither the kubelet nor the API server gives one, so no pod can be identified.
    PodList,
    /// A journal that can be written.
    Journal,
    /// Directories, limits and devices for a container.
    Preparation,
}

// === impl Missing ===

impl Missing {
    /// Reason of the condition `Ready` of the `GpuNode`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::PodList => "PodsNotListed",
            Self::Journal => "JournalNotWritable",
            Self::Preparation => "ContainersNotPrepared",
        }
    }
}

// === impl ServingProblem ===

impl fmt::Display for ServingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Missing::PodList => "pods can't be identified",
            Missing::Journal => "shares can't be recorded",
            Missing::Preparation => "containers can't be prepared",
        };
        write!(f, "{what}: {}", self.text)
    }
}

// === impl Refusal ===

impl Refusal {
    /// Whether the next pod may be refused for the same reason, whatever it requests.
    pub fn doubts_serving(&self) -> bool {
        self.is_unlisted() || matches!(self, Self::Setup(_) | Self::Ledger(_))
    }
}

// === impl Daemon ===

impl<S: PodSource> Daemon<S> {
    /// Whether a pod could be served now. Asks for the pods as a call does; writes to the disk only what couldn't be written before,
    /// and makes and removes a container's directories in `runDir`.
    pub async fn try_serving(&self) -> Result<(), ServingProblem> {
        let text = |error: &dyn fmt::Display| error.to_string();
        match self.list_as_for_a_call().await {
            Err(Refusal::Ledger(error)) => return Err(ServingProblem { kind: Missing::Journal, text: text(&error) }),
            Err(refusal) => return Err(ServingProblem { kind: Missing::PodList, text: text(&refusal) }),
            Ok(()) => {}
        }
        lock(&self.allocator).try_writing()
    }

    async fn list_as_for_a_call(&self) -> Result<(), Refusal> {
        match self.reconcile().await {
            Err(Refusal::Pods(list @ PodSourceError::KubeletPods(_))) => match self.reconcile_unlisted(list).await {
                Err(refusal) if refusal.is_unlisted() => {
                    self.reconcile_patiently().await.map(drop).map_err(|_late| refusal)
                }
                reconciled => reconciled,
            },
            reconciled => reconciled.map(drop),
        }
    }
}

// === impl Allocator ===

impl Allocator {
    /// Whether a share could be recorded and its container prepared.
    fn try_writing(&mut self) -> Result<(), ServingProblem> {
        let ledger = self.ledger_mut().try_writing();
        ledger.map_err(|error| ServingProblem { kind: Missing::Journal, text: error.to_string() })?;
        let prepared = self.containers().try_preparing();
        prepared.map_err(|error| ServingProblem { kind: Missing::Preparation, text: error.to_string() })
    }
}
