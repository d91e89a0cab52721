//! Which container an Allocate is for. The kubelet doesn't say; it is found by elimination, or the allocation fails.
//!
//! The kubelet admits pods one after another and lists a pod just before it asks for its devices. Of all listed pods
//! the one under admission is therefore the only one with a container that lacks its devices, once those are left out
//! that can't be under admission: Failed or Succeeded, past a container's start, refused before, or passed over while
//! another pod was served (reference: Kubernetes `pkg/kubelet`, `HandlePodAdditions` and `devicemanager.Allocate`).
//!
//! A pod that the kubelet rejected before it asked looks as if it waited until its status has come back from the API
//! server. Where several are left, PodResources tells which of them those are ([`Daemon`](crate::Daemon)).

mod call_history;
mod forgotten;

use std::sync::Arc;

use divvy_api::limits::asks_for_cards;
use divvy_api::quantity::parse_count;
use divvy_api::{ContainerSpec, ResourceName, ResourceNames, SlotId};

pub use self::call_history::{AdmissionOrder, CallHistory};
use self::forgotten::waiting_parts;
pub use self::forgotten::{forgotten, perhaps_forgotten, resolve_again, suspects};
use crate::ledger::{Allocations, Part};
use crate::pod::Pod;

/// What the kubelet's question says of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The kubelet has no record of a holder.
    Free,
    /// The kubelet has it on record for somebody.
    Held,
    /// Slot of a card that is unhealthy or gone: the kubelet never offers such slots.
    Hidden,
}

/// A call of the kubelet for a container that it doesn't name.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Names of all resources of the plugin.
    pub names: &'a ResourceNames,
    /// Resource whose devices it asks for.
    pub resource: &'a ResourceName,
    /// Number of devices.
    pub count: usize,
}

/// The container that is being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerUnderAdmission<'a> {
    /// The container's pod.
    pub pod: &'a Pod,
    /// Position in the pod's admission order.
    pub container: usize,
}

/// Why a container isn't known for certain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// No listed pod lacks what is asked for.
    #[error(
        "no listed pod waits for {wanted} {resource}: the pod was deleted during its admission, or the kubelet's pod list is stale; recreate the pod"
    )]
    Nobody {
        /// Devices asked for.
        wanted: usize,
        /// The resource.
        resource: ResourceName,
    },
    /// Several pods or containers lack it.
    #[error("cannot tell {} {wanted} {resource}: {}; recreate the pod", one_or_several(.pods), .pods.join(", "))]
    Ambiguous {
        /// Devices asked for.
        wanted: usize,
        /// The resource.
        resource: ResourceName,
        /// `namespace/name` of each; one, if it is several of its containers.
        pods: Vec<String>,
    },
}

fn one_or_several(pods: &[String]) -> &'static str {
    match pods {
        [_] => "which container is being admitted: several containers of this pod may wait for",
        _ => "which pod is being admitted: all of these wait for",
    }
}

/// Finds the container that lacks the devices asked for.
pub fn resolve<'a>(
    pods: &'a [Arc<Pod>],
    allocations: &Allocations,
    history: &CallHistory,
    question: &Question<'_>,
) -> Result<ContainerUnderAdmission<'a>, Unresolved> {
    question.only_one(&lacking(pods, allocations, history, question))
}

/// Containers that lack the devices asked for, of pods that may be under admission.
pub fn lacking<'a>(
    pods: &'a [Arc<Pod>],
    allocations: &Allocations,
    history: &CallHistory,
    question: &Question<'_>,
) -> Vec<ContainerUnderAdmission<'a>> {
    let lacking = |pod: &'a Arc<Pod>| {
        let may_be = history.could_be_under_admission(pod);
        let container = may_be.then(|| first_lacking(pod, allocations, question.names)).flatten()?;
        question.fits(&pod.containers[container]).then_some(ContainerUnderAdmission { pod, container })
    };
    pods.iter().filter_map(lacking).collect()
}

/// Finds the container whose slots are to be proposed: one that the kubelet forgot comes before its pod's later ones, and
/// counts where no other container lacks anything. Returns whether it was forgotten.
pub fn resolve_choice<'a>(
    pods: &'a [Arc<Pod>],
    allocations: &Allocations,
    history: &CallHistory,
    question: &Question<'_>,
    state: impl Fn(&SlotId) -> SlotState,
) -> Result<(ContainerUnderAdmission<'a>, bool), Unresolved> {
    let forgotten = forgotten(pods, allocations, history, question, &state);
    let (subject, again) = match resolve(pods, allocations, history, question) {
        Ok(found) => {
            let earlier = |other: &&ContainerUnderAdmission<'_>| {
                other.pod.uid == found.pod.uid && other.container < found.container
            };
            let earlier = forgotten.iter().find(earlier).copied();
            (earlier.unwrap_or(found), earlier.is_some())
        }
        Err(Unresolved::Nobody { .. }) => (question.only_one(&forgotten)?, true),
        Err(ambiguous) => return Err(ambiguous),
    };
    // Nor does the question tell of a container whose slots the kubelet has handed to others.
    let is_hidden = |part: &Part| part.slot_id().is_none_or(|slot| state(&slot) == SlotState::Hidden);
    let may_be_meant = |earlier: &ContainerSpec| {
        question.fits(earlier) && waiting_parts(subject.pod, earlier, allocations, history).iter().any(is_hidden)
    };
    if subject.pod.containers[..subject.container].iter().any(may_be_meant) {
        return Err(question.ambiguous(&[subject]));
    }
    Ok((subject, again))
}

/// Position of the container that lacks the requested devices, if the pod may be under admission by what the API server
/// shows of it. A pod of whose containers the kubelet has reported a state before any was served is past its admission.
pub fn may_lack(pod: &Pod, allocations: &Allocations, history: &CallHistory, question: &Question<'_>) -> Option<usize> {
    let is_past = !pod.states.is_empty() && allocations.pod(&pod.uid).is_none();
    let may_be = !is_past && history.could_be_under_admission(pod);
    let container = may_be.then(|| first_lacking(pod, allocations, question.names)).flatten()?;
    question.fits(&pod.containers[container]).then_some(container)
}

/// Pods that lack devices and may still be admitted.
pub fn waiting<'a>(
    pods: &'a [Arc<Pod>],
    allocations: &Allocations,
    history: &CallHistory,
    names: &ResourceNames,
) -> impl Iterator<Item = &'a Arc<Pod>> {
    pods.iter().filter(|pod| history.could_be_under_admission(pod) && first_lacking(pod, allocations, names).is_some())
}

/// The first container, in admission order, that asks for cards and has none.
fn first_lacking(pod: &Pod, allocations: &Allocations, names: &ResourceNames) -> Option<usize> {
    let entry = allocations.pod(&pod.uid);
    let holds = |name: &str| entry.is_some_and(|entry| entry.holding(name).is_some());
    let lacks = |container: &ContainerSpec| asks_for_cards(names, container) && !holds(&container.name);
    pod.containers.iter().position(lacks)
}

// === impl Question ===

impl Question<'_> {
    /// Whether the call may be for this container.
    pub fn fits(&self, container: &ContainerSpec) -> bool {
        let limit = container.limits.get(self.resource.as_str()).and_then(|text| parse_count(text).ok());
        limit.is_some_and(|limit| usize::try_from(limit) == Ok(self.count))
    }

    fn only_one<'a>(&self, found: &[ContainerUnderAdmission<'a>]) -> Result<ContainerUnderAdmission<'a>, Unresolved> {
        match found {
            [subject] => Ok(*subject),
            [] => Err(self.nobody()),
            _ => Err(self.ambiguous(found)),
        }
    }

    /// Error: there is no such container.
    pub fn nobody(&self) -> Unresolved {
        Unresolved::Nobody { wanted: self.count, resource: self.resource.clone() }
    }

    /// Error: any of these may be meant.
    pub fn ambiguous(&self, found: &[ContainerUnderAdmission<'_>]) -> Unresolved {
        let pods = found.iter().map(|subject| subject.pod.to_string()).collect();
        Unresolved::Ambiguous { wanted: self.count, resource: self.resource.clone(), pods }
    }
}

// === impl ContainerUnderAdmission ===

impl<'a> ContainerUnderAdmission<'a> {
    /// Name of the container.
    pub fn name(&self) -> &'a str {
        &self.spec().name
    }

    /// Spec of the container.
    pub fn spec(&self) -> &'a ContainerSpec {
        &self.pod.containers[self.container]
    }
}

#[cfg(test)]
mod tests;
