//! What the daemon answers the kubelet: the one place where pod list, books, cards and delivery meet.
//!
//! Plain and synchronous: whoever holds an [`Allocator`] alone may call it. Lists and records are asked for outside.

mod admission;
mod fits;
mod grant;
mod lists;
mod propose;
pub mod refusal;
mod units;

use std::collections::BTreeSet;
use std::sync::Arc;

use divvy_api::annotation::Preferences;
use divvy_api::request::Defaults;
use divvy_api::{ContainerKind, ContainerRequest, Cores, ResourceName, ResourceNames, SlotId, Tier};
use divvy_placement::{Card, Policy};
use divvy_proto::deviceplugin::ContainerAllocateResponse;
use tracing::warn;

use self::admission::Admission;
use self::grant::{Asked, Given};
use self::lists::Comparison;
pub use self::lists::Moment;
pub use self::refusal::Refusal;
use self::units::GivenUnits;
use crate::container::Containers;
use crate::container::clock;
use crate::identity::{self, Offer, Question, Session, Subject, Unresolved};
use crate::inventory::{CardHealth, CardInfo, Inventory};
use crate::kubelet::pods::PodView;
use crate::ledger::reconcile::Assigned;
use crate::ledger::{ContainerEntry, Holding, Ledger, Nonce, Part, PodEntry, PodRef};

/// What of the configuration decides answers.
#[derive(Clone, Debug)]
pub struct AllocationSettings {
    /// This node, as plans name it.
    pub node_name: String,
    /// Names of the four resources.
    pub names: ResourceNames,
    /// What stands for amounts left out.
    pub defaults: Defaults,
    /// Slots registered for each card.
    pub slots_per_card: u32,
    /// Promised memory, percent of what a card has.
    pub memory_scale: u32,
    /// Promised compute, percent of what a card has.
    pub cores_scale: u32,
    /// Order of plans where the pod doesn't say.
    pub policy: Policy,
}

/// Decides every answer. Owns the books.
#[derive(Debug)]
pub struct Allocator {
    settings: AllocationSettings,
    ledger: Ledger,
    inventory: Arc<Inventory>,
    delivery: Arc<Containers>,
    session: Session,
    /// The pod under admission. Others don't come between, but if one does this is only planned again.
    admission: Option<Admission>,
    /// Holdings that have ended, and whose directories are still there.
    over: Vec<Nonce>,
    /// Live pods that name amounts of cards but no cards.
    unasked: Vec<PodRef>,
    comparison: Comparison,
    units: GivenUnits,
    /// Lists asked for so far, and the last of them that was heard.
    lists: u64,
    heard: u64,
}

/// Free devices among which the kubelet lets us choose.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Free and healthy to the kubelet, `required` included.
    pub available: BTreeSet<SlotId>,
    /// Already taken, from an init container of the pod.
    pub required: BTreeSet<SlotId>,
    /// Wanted in all.
    pub size: usize,
}

// === impl Allocator ===

impl Allocator {
    /// An allocator over these books. Until [`Self::set_inventory`] it has no cards.
    pub fn new(settings: AllocationSettings, ledger: Ledger, delivery: Containers) -> Self {
        let (inventory, session) = (Arc::new(Inventory::default()), Session::default());
        let (delivery, over, unasked) = (Arc::new(delivery), Vec::new(), Vec::new());
        let comparison = Comparison::default();
        let (admission, units, lists, heard) = (None, GivenUnits::default(), 0, 0);
        Self {
            settings,
            ledger,
            inventory,
            delivery,
            session,
            admission,
            over,
            unasked,
            comparison,
            units,
            lists,
            heard,
        }
    }

    /// The books.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Pods of the kubelet's last list that name amounts of cards but ask for none.
    pub fn unasked(&self) -> &[PodRef] {
        &self.unasked
    }

    /// The cards as last seen.
    pub fn inventory(&self) -> &Arc<Inventory> {
        &self.inventory
    }

    /// What the answers are made with; shared, so that publishing cards needn't hold up an answer.
    pub fn delivery(&self) -> &Arc<Containers> {
        &self.delivery
    }

    /// Takes over what the inventory found.
    pub fn set_inventory(&mut self, inventory: Arc<Inventory>) {
        self.inventory = inventory;
    }

    /// The kubelet has restarted: what was concluded from its earlier order of calls no longer holds.
    pub fn begin_session(&mut self) {
        self.session.begin();
        self.admission = None;
    }

    /// `GetPreferredAllocation`: slots on the cards planned for the container under admission.
    pub fn propose(
        &mut self,
        resource: &ResourceName,
        pods: &[Arc<PodView>],
        choice: &Choice,
    ) -> Result<Vec<SlotId>, Refusal> {
        let question = self.question(resource, choice.size);
        let (book, offer) = (self.ledger.book(), |slot: &SlotId| self.offer(choice, slot));
        let resolved = identity::resolve_choice(pods, book, &self.session, &question, offer);
        let (subject, again) = resolved.inspect_err(|unresolved| self.pass_over(unresolved, pods))?;
        self.session.found(subject, pods, self.ledger.book(), &self.settings.names);
        self.enter(subject)?;
        let result = self.propose_for(subject, choice, again);
        self.remember_refusal(&subject.pod.uid, result)
    }

    /// `Allocate` for slots that were just proposed: the container is known without asking.
    pub fn allocate_proposed(&mut self, slots: &[SlotId]) -> Option<Result<ContainerAllocateResponse, Refusal>> {
        let admission = self.admission.as_mut()?;
        let asked: BTreeSet<&SlotId> = slots.iter().collect();
        // Good for one call: the pod's next container may be given the same slots, from an init container.
        let proposed = admission.proposed.take().filter(|proposed| asked.into_iter().eq(&proposed.slots))?;
        let uid = admission.pod.uid.clone();
        let planned = proposed.planned_on.is_some_and(|basis| basis == self.basis());
        let result = self.grant(&Asked { container: proposed.container, slots, again: proposed.again, planned });
        Some(self.remember_refusal(&uid, result))
    }

    /// `Allocate` for any other slots: reuse from an init container, or a kubelet that chose for itself.
    pub fn allocate(
        &mut self,
        resource: &ResourceName,
        pods: &[Arc<PodView>],
        slots: &[SlotId],
    ) -> Result<ContainerAllocateResponse, Refusal> {
        let question = self.question(resource, slots.len());
        let resolved = identity::resolve(pods, self.ledger.book(), &self.session, &question);
        let subject = resolved.inspect_err(|unresolved| self.pass_over(unresolved, pods))?;
        self.session.found(subject, pods, self.ledger.book(), &self.settings.names);
        self.enter(subject)?;
        let asked = Asked { container: subject.container, slots, again: false, planned: false };
        let result = self.certain(resource, subject, pods, slots).and_then(|()| self.grant(&asked));
        self.remember_refusal(&subject.pod.uid, result)
    }

    /// Whichever pod it was that is refused for being one of several, none of them is asked for again: not those whose
    /// admission was over before, and it isn't either.
    fn pass_over(&mut self, unresolved: &Unresolved, pods: &[Arc<PodView>]) {
        if let Unresolved::Ambiguous { .. } = unresolved {
            self.session.pass_over(pods, None, self.ledger.book(), &self.settings.names);
        }
    }

    fn question<'a>(&'a self, resource: &'a ResourceName, count: usize) -> Question<'a> {
        Question { names: &self.settings.names, resource, count }
    }

    /// Refuses where the kubelet, since it restarted, may be asking for an earlier container of the pod once more.
    fn certain(
        &self,
        resource: &ResourceName,
        subject: Subject<'_>,
        pods: &[Arc<PodView>],
        slots: &[SlotId],
    ) -> Result<(), Refusal> {
        let Subject { pod, container } = subject;
        let question = self.question(resource, slots.len());
        let earlier = |other: &Subject<'_>| other.pod.uid == pod.uid && other.container < container;
        let may_be_meant = |other: &Subject<'_>| earlier(other) && question.fits(other.spec());
        let is_doubtful = self.suspects(pods, slots).iter().any(may_be_meant);
        if is_doubtful { Err(question.ambiguous(&[subject]).into()) } else { Ok(()) }
    }

    /// How shares are enforced.
    pub fn tier(&self) -> Tier {
        self.delivery.tier()
    }

    /// Whether cards are given whole or not at all: the hardware enforces nothing less.
    fn gives_whole(&self) -> bool {
        self.tier() == Tier::Mig
    }

    /// Whether a pod with these wishes takes whole cards.
    fn takes_whole(&self, preferences: &Preferences) -> bool {
        self.gives_whole() || preferences.wants_instances()
    }

    /// Whether the kubelet has lost its record of a container's devices, given what it has on record for the pod. It never
    /// shows ordinary init containers: those it has lost if it has lost all others.
    pub fn is_forgotten(&self, subject: &Subject<'_>, known: &[Assigned]) -> bool {
        let Subject { pod, container } = *subject;
        if pod.containers[container].kind != ContainerKind::Init {
            return known.iter().all(|assigned| assigned.container != subject.name());
        }
        let shown = |other: &ContainerEntry| other.request.kind != ContainerKind::Init && other.holding.is_some();
        let holds = |entry: &PodEntry| entry.containers.iter().any(shown);
        known.is_empty() && self.ledger.book().pod(&pod.uid).is_some_and(holds)
    }

    /// Pods, by name, that may still ask for cards.
    pub fn waiting(&self, pods: &[Arc<PodView>]) -> Vec<String> {
        let waiting = identity::waiting(pods, self.ledger.book(), &self.session, &self.settings.names);
        waiting.map(ToString::to_string).collect()
    }

    /// Those of the pods bound to this node that may be under admission for `wanted` devices of `resource`, each with the container's
    /// name, when the kubelet doesn't list its pods.
    pub fn candidates(
        &self,
        resource: &ResourceName,
        pods: Vec<Arc<PodView>>,
        wanted: usize,
    ) -> Vec<(Arc<PodView>, String)> {
        let question = Question { names: &self.settings.names, resource, count: wanted };
        let lacking = |pod: Arc<PodView>| {
            let container = identity::may_lack(&pod, self.ledger.book(), &self.session, &question)?;
            let name = pod.containers[container].name.clone();
            Some((pod, name))
        };
        pods.into_iter().filter_map(lacking).collect()
    }

    /// Containers that a kubelet without its checkpoint may be asking for again.
    pub fn suspects<'a>(&self, pods: &'a [Arc<PodView>], slots: &[SlotId]) -> Vec<Subject<'a>> {
        identity::suspects(pods, self.ledger.book(), &self.session, slots)
    }

    /// `Allocate` for a container that was served before the kubelet lost its records.
    pub fn allocate_again(
        &mut self,
        resource: &ResourceName,
        forgotten: &[Subject<'_>],
        slots: &[SlotId],
    ) -> Result<ContainerAllocateResponse, Refusal> {
        let subject = identity::resolve_again(forgotten, &self.question(resource, slots.len()))?;
        self.enter(subject)?;
        let result = self.grant(&Asked { container: subject.container, slots, again: true, planned: false });
        self.remember_refusal(&subject.pod.uid, result)
    }

    /// `PreStartContainer`: writes the limits of every container that holds these slots, or that held them before
    /// they were handed out a second time. Writing what the books say is harmless however often it's done.
    pub fn pre_start(&self, slots: &[SlotId]) -> Result<(), Refusal> {
        let mut written = 0;
        for entry in self.ledger.book().pods() {
            for (container, holding) in entry.holdings() {
                if slots.iter().any(|slot| holding.parts.iter().any(|part| part.concerns(slot))) {
                    let given = Given::new(&entry.pod, container, holding, self.tier());
                    self.delivery.write_limits(&given.handout())?;
                    written += 1;
                }
            }
        }
        if written == 0 { Err(Refusal::UnknownHolder { slots: slots.to_vec() }) } else { Ok(()) }
    }

    /// Brings what lies on disk for live containers in line with the configuration, which may have changed: the tier in
    /// their limits, and what the tier needs. Those that never had directories get none.
    pub fn renew(&self) {
        for entry in self.ledger.book().pods() {
            for (container, holding) in entry.holdings() {
                let given = Given::new(&entry.pod, container, holding, self.tier());
                if let Err(error) = self.delivery.renew(&given.handout()) {
                    warn!(%error, pod = %entry.pod, container, "its limits stay as they were");
                }
            }
        }
    }

    /// The containers that the shim keeps to their shares, unless they are those of this revision of the ledger.
    pub fn tenants(&self, known: u64) -> Option<clock::View> {
        let revision = self.ledger.revision();
        let holdings = self.ledger.book().pods().flat_map(PodEntry::holdings).map(|(_, holding)| holding);
        let shimmed = |holding: &&Holding| {
            let shared = holding.parts.iter().any(|part| !part.share.exclusive);
            shared && holding.terms_under(self.tier()).tier == Tier::Shim
        };
        let tenant = |holding: &Holding| clock::Tenant {
            nonce: holding.nonce,
            cards: holding.parts.iter().map(|part| (part.card.clone(), part.share.cores)).collect(),
            priority: holding.terms.priority,
        };
        let view = || clock::View { revision, tenants: holdings.filter(shimmed).map(tenant).collect() };
        (revision != known).then(view)
    }

    fn offer(&self, choice: &Choice, slot: &SlotId) -> Offer {
        let healthy = |card: &CardInfo| card.id == slot.card && card.health == CardHealth::Healthy;
        if choice.available.contains(slot) && !choice.required.contains(slot) {
            Offer::Free
        } else if self.inventory.cards.iter().any(healthy) {
            Offer::Taken
        } else {
            Offer::Untold
        }
    }

    /// Makes the subject's pod the one under admission, unless it is already.
    fn enter(&mut self, subject: Subject<'_>) -> Result<(), Refusal> {
        let pod = subject.pod;
        if self.admission.as_ref().is_some_and(|admission| admission.pod.uid == pod.uid) {
            return Ok(());
        }
        let admission = Admission::read(pod, &self.settings, self.tier(), &self.inventory);
        self.admission = Some(self.remember_refusal(&pod.uid, admission)?);
        Ok(())
    }

    /// The node's cards with what every other pod holds.
    fn cards(&self, uid: &str, free_slots: impl Fn(&CardInfo) -> usize) -> Vec<Card> {
        let AllocationSettings { memory_scale, cores_scale, .. } = self.settings;
        let card = |card: &CardInfo| Card {
            id: card.id.clone(),
            model: card.model.as_str().into(),
            profile: card.asked_by().cloned(),
            memory: card.memory,
            memory_capacity: card.memory.percent(memory_scale),
            cores_capacity: Cores::new(cores_scale),
            healthy: card.health == CardHealth::Healthy,
            numa: card.numa,
            free_slots: u32::try_from(free_slots(card)).unwrap_or(u32::MAX),
            held: self.ledger.book().held(&card.id, Some(uid)),
            undivided: self.gives_whole(),
            busy: 0,
        };
        self.inventory.cards.iter().map(card).collect()
    }

    /// How many of a card's slots no pod holds, or this one, as far as the books know.
    fn unheld(&self, card: &CardInfo, uid: &str) -> usize {
        let held = self.ledger.book().slots_held(&card.id, Some(uid));
        (self.settings.slots_per_card as usize).saturating_sub(held.len())
    }

    /// Positions of the cards that the first `count` containers hold.
    fn settled(&self, uid: &str, count: usize) -> Vec<Vec<usize>> {
        let entry = self.ledger.book().pod(uid);
        let Some(admission) = &self.admission else { return Vec::new() };
        let held_by = |request: &ContainerRequest| {
            let holding = entry.and_then(|entry| entry.holding(&request.name));
            let parts = holding.map_or(&[][..], |holding| &holding.parts);
            let position = |part: &Part| self.inventory.cards.iter().position(|card| card.id == part.card);
            parts.iter().filter_map(position).collect()
        };
        admission.requests[..count].iter().map(held_by).collect()
    }

    fn remember_refusal<T>(&mut self, uid: &str, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if result.is_err() {
            self.session.refuse(uid);
            self.admission = None;
        }
        result
    }
}

#[cfg(test)]
mod tests;
