//! Containers of which the kubelet has lost its record, with its checkpoint or with an answer that it never received.

use std::sync::Arc;

use divvy_api::{ContainerKind, ResourceName, SlotId};

use super::grant::Grant;
use super::{Allocator, Refusal};
use crate::identity::{self, ContainerUnderAdmission};
use crate::ledger::{ContainerEntry, PodEntry};
use crate::pod::{DeviceRecord, Pod};
use crate::ports::ContainerResponse;

impl Allocator {
    /// Containers that a kubelet without its checkpoint may be asking for again.
    pub fn suspects<'a>(&self, pods: &'a [Arc<Pod>], slots: &[SlotId]) -> Vec<ContainerUnderAdmission<'a>> {
        identity::suspects(pods, self.ledger.allocations(), &self.history, slots)
    }

    /// `Allocate` for a container that was served before the kubelet lost its records.
    pub fn allocate_again(
        &mut self,
        resource: &ResourceName,
        forgotten: &[ContainerUnderAdmission<'_>],
        slots: &[SlotId],
    ) -> Result<ContainerResponse, Refusal> {
        let subject = identity::resolve_again(forgotten, &self.question(resource, slots.len()))?;
        self.enter(subject)?;
        let result = self.grant(&Grant { container: subject.container, slots, again: true, planned: false });
        self.remember_refusal(&subject.pod.uid, result)
    }

    /// Whether the kubelet has lost its record of a container's devices, given what it has on record for the pod. It never
    /// shows ordinary init containers: those it has lost if it has lost all others.
    pub fn is_forgotten(&self, subject: &ContainerUnderAdmission<'_>, known: &[DeviceRecord]) -> bool {
        let ContainerUnderAdmission { pod, container } = *subject;
        if pod.containers[container].kind != ContainerKind::Init {
            return known.iter().all(|assigned| assigned.container != subject.name());
        }
        let shown = |other: &ContainerEntry| other.request.kind != ContainerKind::Init && other.holding.is_some();
        let holds = |entry: &PodEntry| entry.containers.iter().any(shown);
        known.is_empty() && self.ledger.allocations().pod(&pod.uid).is_some_and(holds)
    }

    /// Refuses where the kubelet, since it restarted, may be asking for an earlier container of the pod once more.
    pub(super) fn certain(
        &self,
        resource: &ResourceName,
        subject: ContainerUnderAdmission<'_>,
        pods: &[Arc<Pod>],
        slots: &[SlotId],
    ) -> Result<(), Refusal> {
        let ContainerUnderAdmission { pod, container } = subject;
        let question = self.question(resource, slots.len());
        let earlier = |other: &ContainerUnderAdmission<'_>| other.pod.uid == pod.uid && other.container < container;
        let may_be_meant = |other: &ContainerUnderAdmission<'_>| earlier(other) && question.fits(other.spec());
        let is_doubtful = self.suspects(pods, slots).iter().any(may_be_meant);
        if is_doubtful { Err(question.ambiguous(&[subject]).into()) } else { Ok(()) }
    }
}
