//! Recovery: of a daemon that starts, of a kubelet that lost its checkpoint, and of a ledger that lost a pod.
//!
//! *The daemon starts.* The kubelet's records of devices are read before the daemon registers, and compared with the ledger as
//! soon as the kubelet's pods are known ([`Daemon::recover`]).
//!
//! *The kubelet has lost its checkpoint.* It asks for containers a second time that the ledger knows:
//!
//! ```text
//! Allocate ─▶ nobody lacks devices ─▶ suspects: containers in the ledger that wait for a start
//!               │ none                    │ PodResources Get: what has the kubelet on record for them?
//!               ▼                         ▼
//!            refused ◀─ none ── forgotten: suspects without a record ── one pod ─▶ allocated again, where it was
//! ```
//!
//! *The ledger has lost a pod.* A container starts with slots that nobody holds: the kubelet's records of live pods that the ledger
//! doesn't know are compared once more ([`Daemon::restore_lost_pods`]).

use std::time::Duration;

use divvy_api::{ResourceName, SlotId};
use tracing::warn;

use super::{Candidates, Daemon};
use crate::allocator::{Refusal, lock};
use crate::pod::PodRef;
use crate::ports::{ContainerResponse, PodSource, PodSourceError};

/// Longest time to ask PodResources about what the kubelet or the ledger has lost: nothing else tells it.
const LOST_DEADLINE: Duration = Duration::from_secs(60);

impl<S: PodSource> Daemon<S> {
    /// Repairs the ledger from the kubelet's pods and its records of devices. To be called before the daemon registers;
    /// until it has succeeded once nothing may be allocated.
    pub async fn recover(&self) -> Result<(), Refusal> {
        // Safe here, and only here: no Allocate is in flight before the plugin registers.
        let records = self.source.all_device_records().await?;
        lock(&self.allocator).compare_with(records);
        match self.reconcile().await {
            Err(Refusal::Pods(list @ PodSourceError::KubeletPods(_))) => self.reconcile_unlisted(list).await,
            reconciled => reconciled.map(drop),
        }
    }

    /// Allocates once more for a container of which the kubelet has lost its record; `nobody` if there is none.
    pub(crate) async fn allocate_again(
        &self,
        resource: &ResourceName,
        candidates: &Candidates,
        slots: &[SlotId],
        nobody: Refusal,
    ) -> Result<ContainerResponse, Refusal> {
        let suspects = lock(&self.allocator).suspects(&candidates.pods, slots);
        let names: Vec<PodRef> = suspects.iter().map(|suspect| suspect.pod.reference()).collect();
        let records = self.source.device_records(&names, LOST_DEADLINE).await.unwrap_or_else(|error| {
            warn!(%error, "PodResources query failed; cannot tell whether the kubelet lost its checkpoint");
            Vec::new()
        });
        let mut allocator = lock(&self.allocator);
        let of_suspects = suspects.into_iter().zip(records);
        let forgotten: Vec<_> = of_suspects
            .filter(|(suspect, records)| records.as_ref().is_some_and(|known| allocator.is_forgotten(suspect, known)))
            .map(|(suspect, _)| suspect)
            .collect();
        if forgotten.is_empty() { Err(nobody) } else { allocator.allocate_again(resource, &forgotten, slots) }
    }

    /// Restores live pods that the ledger doesn't know, and that have devices of this plugin, from the kubelet's records. Their
    /// shares count again; their directories are gone with the ledger's entries, so such a container finds no limits.
    pub(crate) async fn restore_lost_pods(&self) -> Result<(), Refusal> {
        let pods = self.reconcile().await?;
        let unknown = lock(&self.allocator).unknown_pods(&pods);
        match self.source.device_records(&unknown, LOST_DEADLINE).await {
            Ok(records) => {
                lock(&self.allocator).compare_slots_with(records.into_iter().flatten().flatten().collect());
            }
            Err(error) => warn!(%error, "PodResources query failed; cannot restore pods that the ledger has lost"),
        }
        self.reconcile().await.map(drop)
    }
}
