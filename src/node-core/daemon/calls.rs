//! The kubelet's calls, step by step: what is asked of the source of pods, and what of the allocator.

use divvy_api::{ResourceName, SlotId};

use super::{Candidates, Daemon};
use crate::allocator::{Allocator, Call, Choice, Refusal, lock};
use crate::identity::Unresolved;
use crate::ports::{ContainerResponse, PodOrigin, PodSource};

impl<S: PodSource> Daemon<S> {
    /// Answers `GetPreferredAllocation`: slots on the cards planned for the container under admission.
    pub async fn propose(&self, resource: &ResourceName, choice: &Choice) -> Result<Vec<SlotId>, Refusal> {
        let _counted = self.calls.begin();
        let candidates = self.candidates(resource, Call::Propose(choice)).await?;
        self.among(&candidates, |allocator| allocator.propose(resource, &candidates.pods, choice))
    }

    /// Answers `Allocate`: at once where the slots were just proposed, else after listing the pods. Where none of
    /// them lacks devices the kubelet may have lost its checkpoint.
    pub async fn allocate(&self, resource: &ResourceName, slots: &[SlotId]) -> Result<ContainerResponse, Refusal> {
        let _counted = self.calls.begin();
        let proposed = lock(&self.allocator).allocate_proposed(slots);
        if let Some(answer) = proposed {
            return answer;
        }
        let candidates = self.candidates(resource, Call::Allocate(slots)).await?;
        let answer = self.among(&candidates, |allocator| allocator.allocate(resource, &candidates.pods, slots));
        match answer {
            Err(nobody @ Refusal::Identity(Unresolved::Nobody { .. })) => {
                let again = self.allocate_again(resource, &candidates, slots, nobody).await;
                self.identified(&candidates, again)
            }
            answer => answer,
        }
    }

    /// Answers `PreStartContainer`: writes the limits of the container that starts with these slots. A pod that the ledger has
    /// lost is restored from the kubelet's records.
    pub async fn pre_start(&self, slots: &[SlotId]) -> Result<(), Refusal> {
        let started = lock(&self.allocator).pre_start(slots);
        if !matches!(started, Err(Refusal::UnknownHolder { .. })) {
            return started;
        }
        self.restore_lost_pods().await?;
        lock(&self.allocator).pre_start(slots)
    }

    /// Answers `Allocate` for units of memory or compute, which decide nothing: the container's cards come with its slots.
    pub async fn allocate_units(&self, resource: &ResourceName, ids: &[String]) -> Result<(), Refusal> {
        let _counted = self.calls.begin();
        let pods = self.reconcile_patiently().await?;
        lock(&self.allocator).allocate_units(resource, &pods, ids)
    }

    fn among<T>(
        &self,
        candidates: &Candidates,
        decide: impl FnOnce(&mut Allocator) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let decided = decide(&mut lock(&self.allocator));
        self.identified(candidates, decided)
    }

    /// Counts a container that was identified among these pods; a refusal says whose they were.
    fn identified<T>(&self, candidates: &Candidates, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if result.is_ok() {
            let by = if candidates.unlisted.is_some() { PodOrigin::ApiServer } else { PodOrigin::Kubelet };
            self.metrics.identified(by);
        }
        result.map_err(|refusal| candidates.explain(refusal))
    }
}
