//! What the daemon answers the kubelet: the one place where pod list, books, cards and delivery meet.
//!
//! Plain and synchronous: whoever holds an [`Allocator`] alone may call it. Lists and records are asked for outside.

mod admission;
mod fits;
pub mod refusal;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use divvy_contract::claim::Defaults;
use divvy_contract::{CardId, ContainerClaim, ContainerKind, Cores, ResourceNames, Share, SlotId, Tier};
use divvy_placement::{Card, Policy};
use divvy_proto::deviceplugin::ContainerAllocateResponse;
use tracing::{info, warn};

use self::admission::{Admission, Proposal};
use self::fits::Holder;
pub use self::refusal::Refusal;
use crate::delivery::{self, Delivery, Handout};
use crate::identity::{self, Session, Subject, Unresolved};
use crate::inventory::{CardHealth, Inventory};
use crate::kubelet::client::PodList;
use crate::kubelet::pods::PodView;
use crate::ledger::reconcile::{Assigned, Heard, Reading, reconcile};
use crate::ledger::{ContainerEntry, Holding, Ledger, Nonce, Origin, Part, PodEntry, PodRef};

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
    /// How shares are enforced.
    pub tier: Tier,
}

/// Decides every answer. Owns the books.
#[derive(Debug)]
pub struct Allocator {
    settings: AllocationSettings,
    ledger: Ledger,
    inventory: Arc<Inventory>,
    delivery: Arc<Delivery>,
    session: Session,
    /// The pod under admission. Others don't come between, but if one does this is only planned again.
    admission: Option<Admission>,
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

// === impl Choice ===

impl Choice {
    /// Whether the kubelet has no record of anybody's holding this slot.
    fn is_free(&self, slot: &SlotId) -> bool {
        self.available.contains(slot) && !self.required.contains(slot)
    }
}

// === impl Allocator ===

impl Allocator {
    /// An allocator over these books. Until [`Self::set_inventory`] it has no cards.
    pub fn new(settings: AllocationSettings, ledger: Ledger, delivery: Delivery) -> Self {
        let (inventory, session) = (Arc::new(Inventory::default()), Session::default());
        Self { settings, ledger, inventory, delivery: Arc::new(delivery), session, admission: None }
    }

    /// The books.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The cards as last seen.
    pub fn inventory(&self) -> &Arc<Inventory> {
        &self.inventory
    }

    /// What the answers are made with; shared, so that publishing cards needn't hold up an answer.
    pub fn delivery(&self) -> &Arc<Delivery> {
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

    /// Brings the books in line with what the kubelet said (principle 2): shares of ended pods end, and with its
    /// records of devices lost ones are restored. Returns what changed or could not be settled, in words.
    ///
    /// The list was asked for when the ledger stood at `as_of`; `settled`: it is known to be whole.
    pub fn reconcile(
        &mut self,
        list: &PodList,
        as_of: u64,
        settled: bool,
        assigned: Option<&[Assigned]>,
    ) -> Result<Vec<String>, Refusal> {
        let seen = self.session.seen(list.connection);
        let heard = Heard { as_of, pods: &list.pods, settled, seen: &seen, assigned };
        let reading = Reading {
            names: &self.settings.names,
            defaults: self.settings.defaults,
            memory: &|card| self.inventory.cards.iter().find(|known| known.id == *card).map(|known| known.memory),
            nonce: &|pod, container| {
                let found = self.delivery.find(&pod.uid, container);
                found.and_then(|nonce| nonce.parse().ok()).unwrap_or_else(Nonce::random)
            },
        };
        let reconciled = reconcile(self.ledger.book(), &heard, &reading);
        self.session.follow(list);
        if reconciled.changes.is_empty() {
            return Ok(reconciled.notes);
        }
        let changes = reconciled.changes.iter().map(ToString::to_string).chain(reconciled.notes).collect();
        self.ledger.apply(reconciled.changes)?;
        self.remove_stale_directories();
        Ok(changes)
    }

    /// Directories of containers that hold nothing any more.
    pub fn remove_stale_directories(&self) {
        let live = self.ledger.book().nonces().map(|nonce| nonce.to_string()).collect();
        if let Err(error) = self.delivery.sweep(&live) {
            warn!(%error, "directories of ended containers are left behind");
        }
    }

    /// `GetPreferredAllocation`: slots on the cards planned for the container under admission.
    pub fn propose(&mut self, pods: &[PodView], choice: &Choice) -> Result<Vec<SlotId>, Refusal> {
        let names = &self.settings.names;
        let (book, offered) = (self.ledger.book(), |slot: &SlotId| choice.is_free(slot));
        let (subject, again) = identity::resolve_choice(pods, book, &self.session, &names.count, choice.size, offered)?;
        self.session.found(subject, pods, self.ledger.book(), &names.count);
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
        let result = self.allocate_for(&uid, proposed.container, slots, proposed.again);
        Some(self.remember_refusal(&uid, result))
    }

    /// `Allocate` for any other slots: reuse from an init container, or a kubelet that chose for itself.
    pub fn allocate(&mut self, pods: &[PodView], slots: &[SlotId]) -> Result<ContainerAllocateResponse, Refusal> {
        let names = &self.settings.names;
        let subject = identity::resolve(pods, self.ledger.book(), &self.session, &names.count, slots.len())?;
        self.session.found(subject, pods, self.ledger.book(), &names.count);
        self.enter(subject)?;
        let result = self.certain(subject, pods, slots);
        let result = result.and_then(|()| self.allocate_for(&subject.pod.uid, subject.container, slots, false));
        self.remember_refusal(&subject.pod.uid, result)
    }

    /// Refuses where the kubelet, since it restarted, may be asking for an earlier container of the pod once more.
    fn certain(&self, subject: Subject<'_>, pods: &[PodView], slots: &[SlotId]) -> Result<(), Refusal> {
        let Subject { pod, container } = subject;
        let alike = |other: &Subject<'_>| other.held(self.ledger.book()) == slots.len();
        let earlier = |other: &Subject<'_>| other.pod.uid == pod.uid && other.container < container && alike(other);
        if !self.suspects(pods, slots).iter().any(earlier) {
            return Ok(());
        }
        let (wanted, resource) = (slots.len(), self.settings.names.count.clone());
        Err(Unresolved::Ambiguous { wanted, resource, pods: vec![pod.to_string()] }.into())
    }

    /// How shares are enforced.
    pub fn tier(&self) -> Tier {
        self.settings.tier
    }

    /// Whether the kubelet has lost its record of a container's devices, given the containers of the pod that it knows
    /// devices of. It never shows ordinary init containers: those it has lost if it has lost all others.
    pub fn is_forgotten(&self, subject: &Subject<'_>, known: &HashSet<String>) -> bool {
        let Subject { pod, container } = *subject;
        if pod.containers[container].kind != ContainerKind::Init {
            return !known.contains(subject.name());
        }
        let shown = |other: &ContainerEntry| other.claim.kind != ContainerKind::Init && other.holding.is_some();
        let holds = |entry: &PodEntry| entry.containers.iter().any(shown);
        known.is_empty() && self.ledger.book().pod(&pod.uid).is_some_and(holds)
    }

    /// Containers that a kubelet without its checkpoint may be asking for again.
    pub fn suspects<'a>(&self, pods: &'a [PodView], slots: &[SlotId]) -> Vec<Subject<'a>> {
        identity::suspects(pods, self.ledger.book(), &self.session, slots)
    }

    /// `Allocate` for a container that was served before the kubelet lost its records.
    pub fn allocate_again(
        &mut self,
        forgotten: &[Subject<'_>],
        slots: &[SlotId],
    ) -> Result<ContainerAllocateResponse, Refusal> {
        let (book, resource) = (self.ledger.book(), &self.settings.names.count);
        let subject = identity::resolve_again(forgotten, book, resource, slots.len())?;
        self.enter(subject)?;
        let result = self.allocate_for(&subject.pod.uid, subject.container, slots, true);
        self.remember_refusal(&subject.pod.uid, result)
    }

    /// `PreStartContainer`: writes the limits of every container that holds these slots, or that held them before
    /// they were handed out a second time. Writing what the books say is harmless however often it's done.
    pub fn pre_start(&self, slots: &[SlotId]) -> Result<(), Refusal> {
        let mut written = 0;
        for entry in self.ledger.book().pods() {
            for (container, holding) in entry.holdings() {
                if slots.iter().any(|slot| holding.parts.iter().any(|part| part.concerns(slot))) {
                    self.delivery
                        .write_limits(&Given::new(&entry.pod, container, holding).handout(self.settings.tier))?;
                    written += 1;
                }
            }
        }
        if written == 0 { Err(Refusal::UnknownHolder { slots: slots.to_vec() }) } else { Ok(()) }
    }

    /// Makes the subject's pod the one under admission, unless it is already.
    fn enter(&mut self, subject: Subject<'_>) -> Result<(), Refusal> {
        let pod = subject.pod;
        if self.admission.as_ref().is_some_and(|admission| admission.pod.uid == pod.uid) {
            return Ok(());
        }
        let admission = Admission::read(pod, &self.settings);
        self.admission = Some(self.remember_refusal(&pod.uid, admission)?);
        Ok(())
    }

    fn propose_for(&mut self, subject: Subject<'_>, choice: &Choice, again: bool) -> Result<Vec<SlotId>, Refusal> {
        let uid = &subject.pod.uid;
        let held = self.ledger.book();
        let usable = |slot: &&SlotId| held.holder_of(slot).is_none_or(|holder| holder.pod.uid == *uid);
        let mut free: BTreeMap<&CardId, Vec<&SlotId>> = BTreeMap::new();
        for slot in choice.available.difference(&choice.required).filter(usable) {
            free.entry(&slot.card).or_default().push(slot);
        }
        let free_slots = |card: &CardId| free.get(card).map_or(0, Vec::len);
        let cards = self.cards(uid, free_slots);
        if again && let Some(slots) = self.own_slots(subject, choice, &free) {
            self.remember_proposal(subject, &slots, again);
            return Ok(slots);
        }
        let settled = self.settled(uid, subject.container);
        let Some(admission) = &self.admission else { return Err(Refusal::Stale) };
        let plan = admission.plan(&cards, &settled, &self.inventory, &self.settings)?;
        let chosen = &plan.containers[subject.container].chosen;
        let slot_on = |position: &usize| free.get(&cards[*position].id).and_then(|slots| slots.first().copied());
        let chosen = chosen.iter().filter_map(slot_on).cloned();
        let slots: Vec<SlotId> = choice.required.iter().cloned().chain(chosen).collect();
        if let Some(admission) = &mut self.admission {
            admission.remember(&plan, &cards);
        }
        self.remember_proposal(subject, &slots, again);
        Ok(slots)
    }

    /// Slots on the cards that the container held before the kubelet forgot it, if there is one on each.
    fn own_slots(
        &self,
        subject: Subject<'_>,
        choice: &Choice,
        free: &BTreeMap<&CardId, Vec<&SlotId>>,
    ) -> Option<Vec<SlotId>> {
        let required = |card: &CardId| choice.required.iter().find(|slot| slot.card == *card);
        let slot_on = |card: &CardId| required(card).or_else(|| free.get(card)?.first().copied()).cloned();
        let name = &subject.pod.containers[subject.container].name;
        let parts = &self.ledger.book().pod(&subject.pod.uid)?.holding(name)?.parts;
        let slots = parts.iter().map(|part| slot_on(&part.card)).collect::<Option<Vec<_>>>()?;
        choice.required.iter().all(|slot| slots.contains(slot)).then_some(slots)
    }

    fn remember_proposal(&mut self, subject: Subject<'_>, slots: &[SlotId], again: bool) {
        if let Some(admission) = &mut self.admission {
            let slots = slots.iter().cloned().collect();
            admission.proposed = Some(Proposal { container: subject.container, slots, again });
        }
    }

    /// Books `slots` for the container and makes its answer. `again`: the container was served before.
    fn allocate_for(
        &mut self,
        uid: &str,
        container: usize,
        slots: &[SlotId],
        again: bool,
    ) -> Result<ContainerAllocateResponse, Refusal> {
        let Some(admission) = &self.admission else { return Err(Refusal::Stale) };
        let held = self.ledger.book();
        let asked = |card: &CardId, number: u32| slots.iter().any(|slot| slot.card == *card && slot.number == number);
        let cards = self.cards(uid, |card| {
            let others = held.slots_held(card, Some(uid)).into_iter().filter(|number| !asked(card, *number));
            (self.settings.slots_per_card as usize).saturating_sub(others.count())
        });
        let positions = self.positions(slots, &cards)?;
        let last = if again { admission.claims.len() } else { container + 1 };
        let mut settled = self.settled(uid, last);
        settled[container].clone_from(&positions);
        let Admission { claims, preferences, .. } = admission;
        Holder { claims, held: &settled, preferences }.fits(container, &cards)?;
        admission.plan(&cards, &settled, &self.inventory, &self.settings)?;

        let Some(claim) = admission.claims[container].claim else { return Err(Refusal::Stale) };
        let part = |(slot, position): (&SlotId, &usize)| {
            let share = claim.share_on(cards[*position].memory);
            Part { card: slot.card.clone(), slot: Some(slot.number), share }
        };
        let parts = slots.iter().zip(&positions).map(part).collect();
        let holding = Holding { nonce: Nonce::random(), parts, origin: Origin::Allocated };
        let pod = admission.pod.reference();
        let name = admission.claims[container].name.clone();
        let answer = self.delivery.prepare(&Given::new(&pod, &name, &holding).handout(self.settings.tier))?;
        let nonce = holding.nonce.to_string();
        let booked = self.ledger.allocate(&pod, &admission.claims, &name, holding);
        if let Err(error) = booked {
            // Nobody will ever mount it.
            if let Err(error) = self.delivery.remove(&nonce) {
                warn!(%error, "directory left behind");
            }
            return Err(error.into());
        }
        info!(pod = %admission.pod, uid, container = %name, slots = %refusal::list(slots), claim = %claim, "allocated");
        self.session.served(uid, &name);
        Ok(answer)
    }

    /// The node's cards with what every other pod holds.
    fn cards(&self, uid: &str, free_slots: impl Fn(&CardId) -> usize) -> Vec<Card> {
        let AllocationSettings { memory_scale, cores_scale, .. } = self.settings;
        let card = |card: &crate::inventory::CardInfo| Card {
            id: card.id.clone(),
            model: card.model.clone(),
            memory: card.memory,
            memory_capacity: card.memory.percent(memory_scale),
            cores_capacity: Cores::new(cores_scale),
            healthy: card.health == CardHealth::Healthy,
            numa: card.numa,
            free_slots: u32::try_from(free_slots(&card.id)).unwrap_or(u32::MAX),
            held: self.ledger.book().held(&card.id, Some(uid)),
        };
        self.inventory.cards.iter().map(card).collect()
    }

    /// Positions of the cards that the first `count` containers hold.
    fn settled(&self, uid: &str, count: usize) -> Vec<Vec<usize>> {
        let entry = self.ledger.book().pod(uid);
        let Some(admission) = &self.admission else { return Vec::new() };
        let held_by = |claim: &ContainerClaim| {
            let holding = entry.and_then(|entry| entry.holding(&claim.name));
            let parts = holding.map_or(&[][..], |holding| &holding.parts);
            let position = |part: &Part| self.inventory.cards.iter().position(|card| card.id == part.card);
            parts.iter().filter_map(position).collect()
        };
        admission.claims[..count].iter().map(held_by).collect()
    }

    /// The cards behind the slots; they have to be known and distinct.
    fn positions(&self, slots: &[SlotId], cards: &[Card]) -> Result<Vec<usize>, Refusal> {
        let mut positions = Vec::with_capacity(slots.len());
        for slot in slots {
            let position = cards.iter().position(|card| card.id == slot.card);
            let position = position.filter(|_| slot.number < self.settings.slots_per_card);
            let position = position.ok_or_else(|| Refusal::UnknownSlot { slot: slot.to_string() })?;
            if positions.contains(&position) {
                return Err(Refusal::SameCard { card: slot.card.clone() });
            }
            positions.push(position);
        }
        Ok(positions)
    }

    fn remember_refusal<T>(&mut self, uid: &str, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if result.is_err() {
            self.session.refuse(uid);
            self.admission = None;
        }
        result
    }
}

/// A holding in the form in which it is delivered.
struct Given<'a> {
    pod: delivery::PodRef<'a>,
    container: &'a str,
    nonce: String,
    shares: Vec<(CardId, Share)>,
}

impl<'a> Given<'a> {
    fn new(pod: &'a PodRef, container: &'a str, holding: &Holding) -> Self {
        let pod = delivery::PodRef { uid: &pod.uid, namespace: &pod.namespace, name: &pod.name };
        let shares = holding.parts.iter().map(|part| (part.card.clone(), part.share)).collect();
        Self { pod, container, nonce: holding.nonce.to_string(), shares }
    }

    fn handout(&self, tier: Tier) -> Handout<'_> {
        let Self { pod, container, nonce, shares } = self;
        Handout { pod: *pod, container, nonce, shares, tier }
    }
}
