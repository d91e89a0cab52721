//! Which container an Allocate is for. The kubelet doesn't say; it is found by elimination, or the allocation fails.
//!
//! The kubelet admits pods one after another and lists a pod just before it asks for its devices. Of all listed pods
//! the one under admission is therefore the only one with a container that lacks its devices, once those are left out
//! that can't be under admission: Failed or Succeeded, past a container's start, refused by us, or passed over while
//! another pod was served (reference: Kubernetes `pkg/kubelet`, `HandlePodAdditions` and `devicemanager.Allocate`).

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::quantity::parse_count;
use divvy_api::request::asks_for_cards;
use divvy_api::{ContainerKind, ContainerSpec, ResourceName, ResourceNames, SlotId};

use crate::kubelet::client::PodList;
use crate::kubelet::pods::{ContainerState, Phase, PodView};
use crate::ledger::{Book, Part};

/// What is known since the kubelet last registered us.
#[derive(Debug, Default)]
pub struct Session {
    /// Pods that we refused; the kubelet fails them for good. By UID.
    refused: HashSet<String>,
    /// Pods that lacked devices while another pod was served, or when one of several was refused: their admission has
    /// ended. By UID.
    passed_over: HashSet<String>,
    /// Containers that were served, by UID and name: the kubelet won't ask for them again.
    served: HashSet<(String, String)>,
    /// Pods on the last list, by UID, and the connection it came over; beside them pods in the books that were on an
    /// earlier list of that connection.
    listed: (Option<SocketAddr>, HashSet<String>),
    /// When a list last had a pod that the one before it hadn't.
    grown: Option<Instant>,
}

/// What the kubelet's question says of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The kubelet has no record of a holder.
    Free,
    /// The kubelet has it on record for somebody.
    Taken,
    /// Its card is sick or gone, and the kubelet never offers such slots.
    Untold,
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
    pub pod: &'a PodView,
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
    pods: &'a [Arc<PodView>],
    book: &Book,
    session: &Session,
    question: &Question<'_>,
) -> Result<Subject<'a>, Unresolved> {
    let lacking = |pod: &'a Arc<PodView>| {
        let may_be = session.could_be_under_admission(pod);
        let container = may_be.then(|| first_lacking(pod, book, question.names)).flatten()?;
        question.fits(&pod.containers[container]).then_some(Subject { pod, container })
    };
    question.only_one(&pods.iter().filter_map(lacking).collect::<Vec<_>>())
}

/// Finds the container whose slots are to be proposed: one that the kubelet forgot comes before its pod's later ones, and
/// counts where nobody else lacks anything. Says whether it was forgotten.
pub fn resolve_choice<'a>(
    pods: &'a [Arc<PodView>],
    book: &Book,
    session: &Session,
    question: &Question<'_>,
    offer: impl Fn(&SlotId) -> Offer,
) -> Result<(Subject<'a>, bool), Unresolved> {
    let forgotten = forgotten(pods, book, session, question, &offer);
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
    let untold = |part: &Part| part.slot_id().is_none_or(|slot| offer(&slot) == Offer::Untold);
    let may_be_meant = |earlier: &ContainerSpec| {
        question.fits(earlier) && waiting_parts(subject.pod, earlier, book, session).iter().any(untold)
    };
    if subject.pod.containers[..subject.container].iter().any(may_be_meant) {
        return Err(question.ambiguous(&[subject]));
    }
    Ok((subject, again))
}

/// What the container holds, if the kubelet may ask for it: it doesn't run and wasn't served since we were registered.
fn waiting_parts<'a>(pod: &PodView, container: &ContainerSpec, book: &'a Book, session: &Session) -> &'a [Part] {
    let runs = pod.states.get(&container.name) == Some(&ContainerState::Running);
    if runs || session.has_served(pod, container) {
        return &[];
    }
    let holding = book.pod(&pod.uid).and_then(|entry| entry.holding(&container.name));
    holding.map_or(&[][..], |holding| &holding.parts)
}

/// Finds the container that the kubelet asks for a second time, because it lost its checkpoint: the first of its pod's
/// `forgotten` ones, which are those [`suspects`] of whose devices the kubelet has no record.
pub fn resolve_again<'a>(forgotten: &[Subject<'a>], question: &Question<'_>) -> Result<Subject<'a>, Unresolved> {
    let mut found = forgotten.to_vec();
    found.dedup_by_key(|subject| subject.pod.uid.as_str());
    found.retain(|subject| question.fits(subject.spec()));
    question.only_one(&found)
}

/// Containers in our books that the kubelet may be asking for again: of live pods, not running (those it leaves alone),
/// not served since it registered us.
///
/// Where it asks for slots of an init container it has that one on record: only containers after it can be meant. If the
/// record is older than our registration the checkpoint wasn't lost, only perhaps the last answer, with the kubelet that
/// waited for it.
pub fn suspects<'a>(pods: &'a [Arc<PodView>], book: &Book, session: &Session, slots: &[SlotId]) -> Vec<Subject<'a>> {
    let of_pod = |pod: &'a Arc<PodView>| {
        let entry = book.pod(&pod.uid).filter(|_| !pod.has_ended())?;
        let parts =
            |container: &ContainerSpec| entry.holding(&container.name).map_or(&[][..], |holding| &holding.parts);
        let lends = |init: &ContainerSpec| {
            let mut lent = parts(init).iter().filter_map(Part::slot_id);
            init.kind == ContainerKind::Init && lent.any(|slot| slots.contains(&slot))
        };
        let lends_anew = |init: &ContainerSpec| lends(init) && session.has_served(pod, init);
        let first = match pod.containers.iter().rposition(lends_anew) {
            Some(init) => init + 1,
            None if pod.containers.iter().any(lends) => {
                pod.containers.iter().rposition(|container| !parts(container).is_empty())?
            }
            None => 0,
        };
        let waits = |container: &ContainerSpec| !waiting_parts(pod, container, book, session).is_empty();
        let waiting = (first..pod.containers.len()).filter(|container| waits(&pod.containers[*container]));
        Some(waiting.map(|container| Subject { pod, container }).collect::<Vec<_>>())
    };
    pods.iter().filter_map(of_pod).flatten().collect()
}

/// Containers in our books of which the kubelet shows that it has no record: it offers slots that they hold as free
/// ones, or it has asked for an earlier container of their pod again. Of each pod the first, which is the one that it
/// asks for.
pub fn forgotten<'a>(
    pods: &'a [Arc<PodView>],
    book: &Book,
    session: &Session,
    question: &Question<'_>,
    offer: impl Fn(&SlotId) -> Offer,
) -> Vec<Subject<'a>> {
    let forgotten = |pod: &'a Arc<PodView>| {
        let is_forgotten = |container: usize| {
            let (earlier, parts) =
                (&pod.containers[..container], waiting_parts(pod, &pod.containers[container], book, session));
            let offered = parts.iter().filter_map(Part::slot_id).any(|slot| offer(&slot) == Offer::Free);
            offered || (!parts.is_empty() && earlier.iter().any(|earlier| session.has_served(pod, earlier)))
        };
        let over = matches!(pod.phase, Phase::Failed | Phase::Succeeded) || session.refused.contains(&pod.uid);
        let container = (0..pod.containers.len()).find(|at| is_forgotten(*at)).filter(|_| !over)?;
        let subject = Subject { pod, container };
        question.fits(subject.spec()).then_some(subject)
    };
    pods.iter().filter_map(forgotten).collect()
}

/// Where it lacks the devices asked for, if the pod may be under admission by what the API server shows of it: past that
/// is also a pod of whose containers the kubelet has told a state before any was served.
pub fn may_lack(pod: &PodView, book: &Book, session: &Session, question: &Question<'_>) -> Option<usize> {
    let is_past = !pod.states.is_empty() && book.pod(&pod.uid).is_none();
    let may_be = !is_past && session.could_be_under_admission(pod);
    let container = may_be.then(|| first_lacking(pod, book, question.names)).flatten()?;
    question.fits(&pod.containers[container]).then_some(container)
}

/// Pods that lack devices and may still be admitted.
pub fn waiting<'a>(
    pods: &'a [Arc<PodView>],
    book: &Book,
    session: &Session,
    names: &ResourceNames,
) -> impl Iterator<Item = &'a Arc<PodView>> {
    pods.iter().filter(|pod| session.could_be_under_admission(pod) && first_lacking(pod, book, names).is_some())
}

/// The first container, in admission order, that asks for cards and has none.
fn first_lacking(pod: &PodView, book: &Book, names: &ResourceNames) -> Option<usize> {
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

// === impl Session ===

impl Session {
    /// The kubelet has restarted. What we refused stays refused.
    pub fn begin(&mut self) {
        self.passed_over.clear();
        self.served.clear();
    }

    /// The pod was refused.
    pub fn refuse(&mut self, uid: &str) {
        self.refused.insert(uid.to_owned());
    }

    /// This container is the one under admission, so no other listed pod is.
    pub fn found(&mut self, subject: Subject<'_>, pods: &[Arc<PodView>], book: &Book, names: &ResourceNames) {
        self.pass_over(pods, Some(subject.pod), book, names);
    }

    /// The admission of these pods has ended, but for one.
    pub fn pass_over(&mut self, pods: &[Arc<PodView>], but: Option<&PodView>, book: &Book, names: &ResourceNames) {
        let others = pods.iter().filter(|pod| but.is_none_or(|but| but.uid != pod.uid));
        let lacking = others.filter(|pod| first_lacking(pod, book, names).is_some());
        self.passed_over.extend(lacking.map(|pod| pod.uid.clone()));
    }

    /// This container got its devices.
    pub fn served(&mut self, uid: &str, container: &str) {
        self.served.insert((uid.to_owned(), container.to_owned()));
    }

    /// Pods, by UID, that the kubelet at the other end of this connection has listed before. What is missing from its
    /// next list has ended: a kubelet lists pods from their arrival to their end, once it lists them at all.
    pub fn seen(&self, connection: Option<SocketAddr>) -> Option<&HashSet<String>> {
        let (known, pods) = &self.listed;
        (connection.is_some() && connection == *known).then_some(pods)
    }

    /// How long no pod has come onto the kubelet's list. One that has started lists its pods one by one, as it admits
    /// them: after a restart on a busy node that has taken longer than any time that could be waited for.
    pub fn quiet(&mut self, pods: &[Arc<PodView>], now: Instant) -> Duration {
        let (_, known) = &self.listed;
        if pods.iter().any(|pod| !known.contains(&pod.uid)) {
            self.grown = Some(now);
        }
        self.grown.map_or(Duration::ZERO, |grown| now.saturating_duration_since(grown))
    }

    /// Takes over the kubelet's list, and drops what is remembered of pods that aren't on it any more. One that is in the
    /// books stays known as listed before: it may run on, and then ends later.
    pub fn follow(&mut self, list: &PodList, book: &Book) {
        let mut listed: HashSet<String> = list.pods.iter().map(|pod| pod.uid.clone()).collect();
        let before = self.seen(list.connection).into_iter().flatten();
        listed.extend(before.filter(|uid| book.pod(uid).is_some()).cloned().collect::<Vec<_>>());
        self.listed = (list.connection, listed);
        let Self { refused, passed_over, served, listed: (_, listed), grown: _ } = self;
        refused.retain(|uid| listed.contains(uid));
        passed_over.retain(|uid| listed.contains(uid));
        served.retain(|(uid, _)| listed.contains(uid));
    }

    fn has_served(&self, pod: &PodView, container: &ContainerSpec) -> bool {
        self.served.contains(&(pod.uid.clone(), container.name.clone()))
    }

    /// Whether nothing speaks against it.
    pub fn could_be_under_admission(&self, pod: &PodView) -> bool {
        !matches!(pod.phase, Phase::Failed | Phase::Succeeded)
            && !pod.has_started()
            && !self.refused.contains(&pod.uid)
            && !self.passed_over.contains(&pod.uid)
    }
}

#[cfg(test)]
mod tests;
