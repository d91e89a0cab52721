//! Slots on planned cards: the answer to `GetPreferredAllocation`, and what is kept of it for the `Allocate` that follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use divvy_api::{CardId, SlotId};

use super::{Allocator, Choice, Refusal};
use crate::identity::ContainerUnderAdmission;
use crate::inventory::Inventory;

/// Slots of the last answer to `GetPreferredAllocation`.
#[derive(Debug)]
pub(super) struct Proposal {
    /// Position of the container in the pod.
    pub(super) container: usize,
    pub(super) slots: BTreeSet<SlotId>,
    /// The container was served before, and the kubelet has lost its record of it.
    pub(super) again: bool,
    /// What the slots were planned on; `None` if they weren't, or not all of them.
    pub(super) planned_on: Option<Basis>,
}

/// What a plan stands on: it holds as long as this stays the same.
#[derive(Debug)]
pub(super) struct Basis {
    /// Revision of the ledger.
    revision: u64,
    inventory: Arc<Inventory>,
}

/// Free slots by card, lowest number first.
type Free<'a> = BTreeMap<&'a CardId, Vec<&'a SlotId>>;

// === impl PartialEq for Basis ===

impl PartialEq for Basis {
    fn eq(&self, other: &Self) -> bool {
        self.revision == other.revision && Arc::ptr_eq(&self.inventory, &other.inventory)
    }
}

// === impl Allocator ===

impl Allocator {
    /// What a plan made now stands on.
    pub(super) fn basis(&self) -> Basis {
        Basis { revision: self.ledger.revision(), inventory: Arc::clone(&self.inventory) }
    }

    /// Plans the subject's pod, and answers slots for the subject.
    pub(super) fn propose_for(
        &mut self,
        subject: ContainerUnderAdmission<'_>,
        choice: &Choice,
        again: bool,
    ) -> Result<Vec<SlotId>, Refusal> {
        let free = self.free_slots(&subject.pod.uid, choice);
        if again && let Some(slots) = self.own_slots(subject, choice, &free) {
            self.remember_proposal(subject, &slots, again, None);
            return Ok(slots);
        }
        // The kubelet offers slots of the kind that it asks for; those of other kinds are told by the books.
        let Some(admission) = &self.admission else { return Err(Refusal::Stale) };
        let asked = admission.requests[subject.container].profile.as_ref();
        let state = self.state(&subject.pod.uid, |card| {
            let is_offered = card.requested_profile() == asked;
            if is_offered { free.get(&card.id).map_or(0, Vec::len) } else { self.unheld(card, &subject.pod.uid) }
        });
        let allocated = self.allocated(&subject.pod.uid, subject.container);
        let Some(admission) = &mut self.admission else { return Err(Refusal::Stale) };
        let plan = admission.plan(&state, &allocated, &self.settings)?;
        let cards = state.cards();
        admission.remember(&plan, cards);
        let chosen = &plan.containers[subject.container].chosen;
        let slot_on = |position: &usize| free.get(&cards[*position].id).and_then(|slots| slots.first().copied());
        let chosen = chosen.iter().filter_map(slot_on).cloned();
        let slots: Vec<SlotId> = choice.required.iter().cloned().chain(chosen).collect();
        let planned_on = (choice.required.is_empty() && !again).then(|| self.basis());
        self.remember_proposal(subject, &slots, again, planned_on);
        Ok(slots)
    }

    /// Slots that the kubelet offers as free, without those that other pods hold in the ledger.
    fn free_slots<'a>(&self, uid: &str, choice: &'a Choice) -> Free<'a> {
        let offered: Vec<&SlotId> = choice.available.difference(&choice.required).collect();
        let of_card = |slots: &[&'a SlotId]| {
            let held = self.ledger.allocations().slots_held(&slots[0].card, Some(uid));
            let free = slots.iter().copied().filter(|slot| !held.contains(&slot.number));
            (&slots[0].card, free.collect())
        };
        offered.chunk_by(|one, next| one.card == next.card).map(of_card).collect()
    }

    /// Slots on the cards that the container held before the kubelet forgot it, if there is one on each.
    fn own_slots(&self, subject: ContainerUnderAdmission<'_>, choice: &Choice, free: &Free<'_>) -> Option<Vec<SlotId>> {
        let required = |card: &CardId| choice.required.iter().find(|slot| slot.card == *card);
        let slot_on = |card: &CardId| required(card).or_else(|| free.get(card)?.first().copied()).cloned();
        let parts = &self.ledger.allocations().pod(&subject.pod.uid)?.holding(subject.name())?.parts;
        let slots = parts.iter().map(|part| slot_on(&part.card)).collect::<Option<Vec<_>>>()?;
        choice.required.iter().all(|slot| slots.contains(slot)).then_some(slots)
    }

    fn remember_proposal(
        &mut self,
        subject: ContainerUnderAdmission<'_>,
        slots: &[SlotId],
        again: bool,
        planned_on: Option<Basis>,
    ) {
        if let Some(admission) = &mut self.admission {
            let slots = slots.iter().cloned().collect();
            admission.proposed = Some(Proposal { container: subject.container, slots, again, planned_on });
        }
    }
}
