//! Which container an Allocate is for. The kubelet doesn't say; it is found by elimination, or the allocation fails.
//!
//! The kubelet admits pods one after another and lists a pod just before it asks for its devices. Of all listed pods
//! the one under admission is therefore the only one with a container that lacks its devices, once those are left out
//! that can't be under admission: Failed or Succeeded, past a container's start, refused by us, or passed over while
//! another pod was served (reference: Kubernetes `pkg/kubelet`, `HandlePodAdditions` and `devicemanager.Allocate`).

mod forgotten;
mod session;

use std::sync::Arc;

use divvy_api::quantity::parse_count;
use divvy_api::request::asks_for_cards;
use divvy_api::{ContainerSpec, ResourceName, ResourceNames, SlotId};

use self::forgotten::waiting_parts;
pub use self::forgotten::{forgotten, resolve_again, suspects};
pub use self::session::Session;
use crate::ledger::{Book, Part};
use crate::pod::Pod;

/// What the kubelet's question says of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The kubelet has no record of a holder.
    Free,
    /// The kubelet has it on record for somebody.
    Held,
    /// Its card is sick or gone, and the kubelet never offers such slots.
    Hidden,
}

/// What the kubelet asks for, for a container that it doesn't name.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Names of all our resources.
    pub names: &'a ResourceNames,
    /// The one whose devices it asks for.
    pub resource: &'a ResourceName,
    /// How many.
    pub count: usize,
}

/// The container that is being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// Its pod.
    pub pod: &'a Pod,
    /// Its position in the pod's admission order.
    pub container: usize,
}

/// Why a container isn't known for certain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// No listed pod lacks what is asked for.
    #[error(
        "no listed pod has a container that lacks {wanted} {resource}: the pod was deleted during its admission, or the kubelet's pod list is stale; recreate the pod"
    )]
    Nobody {
        /// Devices asked for.
        wanted: usize,
        /// The resource.
        resource: ResourceName,
    },
    /// Several do.
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
        [_] => "which container is being admitted, several of this pod may lack",
        _ => "which pod is being admitted, all of these lack",
    }
}

/// Finds the container that lacks the devices asked for.
pub fn resolve<'a>(
    pods: &'a [Arc<Pod>],
    book: &Book,
    session: &Session,
    question: &Question<'_>,
) -> Result<Subject<'a>, Unresolved> {
    let lacking = |pod: &'a Arc<Pod>| {
        let may_be = session.could_be_under_admission(pod);
        let container = may_be.then(|| first_lacking(pod, book, question.names)).flatten()?;
        question.fits(&pod.containers[container]).then_some(Subject { pod, container })
    };
    question.only_one(&pods.iter().filter_map(lacking).collect::<Vec<_>>())
}

/// Finds the container whose slots are to be proposed: one that the kubelet forgot comes before its pod's later ones, and
/// counts where nobody else lacks anything. Says whether it was forgotten.
pub fn resolve_choice<'a>(
    pods: &'a [Arc<Pod>],
    book: &Book,
    session: &Session,
    question: &Question<'_>,
    state: impl Fn(&SlotId) -> SlotState,
) -> Result<(Subject<'a>, bool), Unresolved> {
    let forgotten = forgotten(pods, book, session, question, &state);
    let (subject, again) = match resolve(pods, book, session, question) {
        Ok(found) => {
            let earlier = |other: &&Subject<'_>| other.pod.uid == found.pod.uid && other.container < found.container;
            let earlier = forgotten.iter().find(earlier).copied();
            (earlier.unwrap_or(found), earlier.is_some())
        }
        Err(Unresolved::Nobody { .. }) => (question.only_one(&forgotten)?, true),
        Err(ambiguous) => return Err(ambiguous),
    };
    // Nor does the question tell of a container whose slots the kubelet has handed to others.
    let is_hidden = |part: &Part| part.slot_id().is_none_or(|slot| state(&slot) == SlotState::Hidden);
    let may_be_meant = |earlier: &ContainerSpec| {
        question.fits(earlier) && waiting_parts(subject.pod, earlier, book, session).iter().any(is_hidden)
    };
    if subject.pod.containers[..subject.container].iter().any(may_be_meant) {
        return Err(question.ambiguous(&[subject]));
    }
    Ok((subject, again))
}

/// Where it lacks the devices asked for, if the pod may be under admission by what the API server shows of it: past that
/// is also a pod of whose containers the kubelet has told a state before any was served.
pub fn may_lack(pod: &Pod, book: &Book, session: &Session, question: &Question<'_>) -> Option<usize> {
    let is_past = !pod.states.is_empty() && book.pod(&pod.uid).is_none();
    let may_be = !is_past && session.could_be_under_admission(pod);
    let container = may_be.then(|| first_lacking(pod, book, question.names)).flatten()?;
    question.fits(&pod.containers[container]).then_some(container)
}

/// Pods that lack devices and may still be admitted.
pub fn waiting<'a>(
    pods: &'a [Arc<Pod>],
    book: &Book,
    session: &Session,
    names: &ResourceNames,
) -> impl Iterator<Item = &'a Arc<Pod>> {
    pods.iter().filter(|pod| session.could_be_under_admission(pod) && first_lacking(pod, book, names).is_some())
}

/// The first container, in admission order, that asks for cards and has none.
fn first_lacking(pod: &Pod, book: &Book, names: &ResourceNames) -> Option<usize> {
    let entry = book.pod(&pod.uid);
    let holds = |name: &str| entry.is_some_and(|entry| entry.holding(name).is_some());
    let lacks = |container: &ContainerSpec| asks_for_cards(names, container) && !holds(&container.name);
    pod.containers.iter().position(lacks)
}

// === impl Question ===

impl Question<'_> {
    /// Whether it may be asked for this container.
    pub fn fits(&self, container: &ContainerSpec) -> bool {
        let limit = container.limits.get(self.resource.as_str()).and_then(|text| parse_count(text).ok());
        limit.is_some_and(|limit| usize::try_from(limit) == Ok(self.count))
    }

    fn only_one<'a>(&self, found: &[Subject<'a>]) -> Result<Subject<'a>, Unresolved> {
        match found {
            [subject] => Ok(*subject),
            [] => Err(self.nobody()),
            _ => Err(self.ambiguous(found)),
        }
    }

    /// There is no such container.
    pub fn nobody(&self) -> Unresolved {
        Unresolved::Nobody { wanted: self.count, resource: self.resource.clone() }
    }

    /// Any of these may be meant.
    pub fn ambiguous(&self, found: &[Subject<'_>]) -> Unresolved {
        let pods = found.iter().map(|subject| subject.pod.to_string()).collect();
        Unresolved::Ambiguous { wanted: self.count, resource: self.resource.clone(), pods }
    }
}

// === impl Subject ===

impl<'a> Subject<'a> {
    /// Its name.
    pub fn name(&self) -> &'a str {
        &self.spec().name
    }

    /// As its pod has it.
    pub fn spec(&self) -> &'a ContainerSpec {
        &self.pod.containers[self.container]
    }
}

#[cfg(test)]
mod tests;
