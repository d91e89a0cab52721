//! Containers of which the kubelet has lost its record: it asks for them a second time.

use std::sync::Arc;

use divvy_api::{ContainerKind, ContainerSpec, SlotId};

use super::{CallHistory, ContainerUnderAdmission, Question, SlotState, Unresolved};
use crate::ledger::{Allocations, Part, PodEntry};
use crate::pod::{ContainerState, Phase, Pod};

/// What the container holds, if the kubelet may ask for it: it doesn't run and wasn't served since the plugin registered.
pub(super) fn waiting_parts<'a>(
    pod: &Pod,
    container: &ContainerSpec,
    allocations: &'a Allocations,
    history: &CallHistory,
) -> &'a [Part] {
    let runs = pod.states.get(&container.name) == Some(&ContainerState::Running);
    if runs || history.has_served(pod, container) {
        return &[];
    }
    let holding = allocations.pod(&pod.uid).and_then(|entry| entry.holding(&container.name));
    holding.map_or(&[][..], |holding| &holding.parts)
}

/// Finds the container that the kubelet asks for a second time, because it lost its checkpoint: the first of its pod's
/// `forgotten` ones, which are those [`suspects`] of whose devices the kubelet has no record.
pub fn resolve_again<'a>(
    forgotten: &[ContainerUnderAdmission<'a>],
    question: &Question<'_>,
) -> Result<ContainerUnderAdmission<'a>, Unresolved> {
    let mut found = forgotten.to_vec();
    found.dedup_by_key(|subject| subject.pod.uid.as_str());
    found.retain(|subject| question.fits(subject.spec()));
    question.only_one(&found)
}

/// Containers in the ledger that the kubelet may be asking for again: of live pods, not running (those it leaves alone),
/// not served since the plugin registered.
///
/// Where it asks for slots of an init container it has that one on record: only containers after it can be meant. If the
/// record is older than the plugin's registration the checkpoint wasn't lost, only perhaps the last answer, with the kubelet that
/// waited for it.
pub fn suspects<'a>(
    pods: &'a [Arc<Pod>],
    allocations: &Allocations,
    history: &CallHistory,
    slots: &[SlotId],
) -> Vec<ContainerUnderAdmission<'a>> {
    let mut suspects = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.has_ended()) {
        let Some(entry) = allocations.pod(&pod.uid) else { continue };
        let Some(first) = first_suspect(pod, entry, history, slots) else { continue };
        let waits = |container: &ContainerSpec| !waiting_parts(pod, container, allocations, history).is_empty();
        let waiting = (first..pod.containers.len()).filter(|container| waits(&pod.containers[*container]));
        suspects.extend(waiting.map(|container| ContainerUnderAdmission { pod, container }));
    }
    suspects
}

/// Position of the pod's first container that a call for these slots can be meant for.
fn first_suspect(pod: &Pod, entry: &PodEntry, history: &CallHistory, slots: &[SlotId]) -> Option<usize> {
    let parts = |container: &ContainerSpec| entry.holding(&container.name).map_or(&[][..], |holding| &holding.parts);
    let is_asked_for = |part: &Part| part.slot_id().is_some_and(|slot| slots.contains(&slot));
    let lends = |init: &ContainerSpec| init.kind == ContainerKind::Init && parts(init).iter().any(is_asked_for);
    let lends_anew = |init: &ContainerSpec| lends(init) && history.has_served(pod, init);
    match pod.containers.iter().rposition(lends_anew) {
        Some(init) => Some(init + 1),
        None if pod.containers.iter().any(lends) => {
            pod.containers.iter().rposition(|container| !parts(container).is_empty())
        }
        None => Some(0),
    }
}

/// Containers in the ledger of which the kubelet shows that it has no record: it offers slots that they hold as free
/// ones, or it has asked for an earlier container of their pod again. Of each pod the first, which is the one that it
/// asks for.
pub fn forgotten<'a>(
    pods: &'a [Arc<Pod>],
    allocations: &Allocations,
    history: &CallHistory,
    question: &Question<'_>,
    state: impl Fn(&SlotId) -> SlotState,
) -> Vec<ContainerUnderAdmission<'a>> {
    let mut forgotten = Vec::new();
    for pod in pods {
        let is_forgotten = |container: &usize| is_forgotten(pod, *container, allocations, history, &state);
        let is_over = matches!(pod.phase, Phase::Failed | Phase::Succeeded) || history.refused.contains(&pod.uid);
        let container = (0..pod.containers.len()).find(is_forgotten).filter(|_| !is_over);
        let subject = container.map(|container| ContainerUnderAdmission { pod, container });
        forgotten.extend(subject.filter(|subject| question.fits(subject.spec())));
    }
    forgotten
}

fn is_forgotten(
    pod: &Pod,
    container: usize,
    allocations: &Allocations,
    history: &CallHistory,
    state: impl Fn(&SlotId) -> SlotState,
) -> bool {
    let parts = waiting_parts(pod, &pod.containers[container], allocations, history);
    let is_offered = parts.iter().filter_map(Part::slot_id).any(|slot| state(&slot) == SlotState::Free);
    let mut earlier = pod.containers[..container].iter();
    is_offered || (!parts.is_empty() && earlier.any(|earlier| history.has_served(pod, earlier)))
}

/// Containers in the ledger of which the kubelet doesn't show that it has a record: it offers slots that they hold, never
/// offers these because their card is unhealthy, or has handed them to others. Of each pod the first.
pub fn perhaps_forgotten<'a>(
    pods: &'a [Arc<Pod>],
    allocations: &Allocations,
    history: &CallHistory,
    question: &Question<'_>,
    state: impl Fn(&SlotId) -> SlotState,
) -> Vec<ContainerUnderAdmission<'a>> {
    let is_unrecorded = |part: &Part| part.slot_id().is_none_or(|slot| state(&slot) != SlotState::Held);
    let mut perhaps = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.has_ended()) {
        let parts = |spec: &ContainerSpec| waiting_parts(pod, spec, allocations, history);
        let is_meant = |spec: &ContainerSpec| question.fits(spec) && parts(spec).iter().any(is_unrecorded);
        let container = pod.containers.iter().position(is_meant);
        perhaps.extend(container.map(|container| ContainerUnderAdmission { pod, container }));
    }
    perhaps
}
