//! A node as readers see it: made anew at every change, never changed.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::Arc;

use divvy_contract::{MigProfile, Tier};
use divvy_placement::{Card, Ground, Held, Links, NoPlan, Taken, plan, summary};
use foldhash::fast::FixedState;

use crate::demand::Demand;
use crate::question::Question;

/// The cards of one node, with what its ledger says is held and what was promised on top.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Grows with every change of any node; no two states of the cluster share one.
    pub revision: u64,
    /// What is free for the next pod.
    pub cards: Box<[Card]>,
    /// One table for all nodes that are linked alike.
    pub links: Arc<Links>,
    /// Pods that hold or were promised shares.
    pub holders: Box<[Holder]>,
    /// Why it takes no pods, whatever is free.
    pub closed: Option<Arc<str>>,
    /// How it enforces shares, at least.
    pub tier: Tier,
    /// Revision of its ledger that is shown.
    pub ledger_revision: u64,
    pub(crate) ground: Ground,
    pub(crate) slots_per_card: u32,
}

/// A pod on a node.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Its UID.
    pub uid: Arc<str>,
    /// Its priority; the highest where the pod isn't known, so that nobody thinks of evicting it.
    pub priority: i32,
    /// What it takes of each card at its peak.
    pub on: Box<[Taken]>,
}

// === impl Node ===

impl Node {
    /// The cards as they would be without some of the holders.
    pub fn cards_without(&self, is_gone: impl Fn(&Holder) -> bool) -> Vec<Card> {
        let bare = |card: &Card| Card { held: Held::default(), free_slots: self.slots_per_card, ..card.clone() };
        let mut cards: Vec<Card> = self.cards.iter().map(bare).collect();
        hold(
            &mut cards,
            self.holders.iter().filter(|holder| !is_gone(holder)).flat_map(|holder| holder.on.iter().copied()),
        );
        cards
    }

    /// Why it doesn't serve the pod now, whatever is free.
    pub fn refusal(&self, demand: &Demand) -> Option<Arc<str>> {
        self.closed.clone().or_else(|| self.never(demand))
    }

    /// Why it will never serve the pod.
    pub(crate) fn never(&self, demand: &Demand) -> Option<Arc<str>> {
        let tier = demand.preferences.tier.filter(|wanted| *wanted > self.tier);
        let tier = tier.map(|wanted| format!("tier {wanted} wanted, the node enforces by {}", self.tier).into());
        let host_memory = || demand.preferences.oversubscribe.then(|| "memory beyond the card's is not given".into());
        tier.or_else(host_memory)
    }

    /// Why the pod finds no cards here; `None` if it does.
    pub(crate) fn why_not(&self, question: &Question<'_>) -> Option<Arc<str>> {
        if let Some(refusal) = self.refusal(question.demand) {
            return Some(refusal);
        }
        match plan(&self.cards, &self.links, &question.demand.request(), &question.policies.cards) {
            Ok(_) => None,
            Err(NoPlan::Nothing { reasons, .. }) => Some(summary(&reasons).into()),
            Err(NoPlan::GaveUp { .. }) => Some("no plan found in the time that there is".into()),
        }
    }

    /// Whether the pod would find cards here if the pods of lower priority were gone.
    pub(crate) fn may_be_cleared_for(&self, question: &Question<'_>) -> bool {
        let lower = |holder: &Holder| holder.priority < question.demand.priority;
        self.refusal(question.demand).is_none()
            && self.holders.iter().any(lower)
            && question.fits(self, &self.cards_without(lower))
    }

    /// A number of its kind of hardware: what one could run when nobody is there, all could.
    pub(crate) fn kind(&self) -> u64 {
        let mut state = FixedState::default().build_hasher();
        for Card { model, profile, memory_capacity, cores_capacity, numa, .. } in &self.cards {
            (model, profile.as_ref().map(MigProfile::as_str), memory_capacity.as_mib(), cores_capacity.units(), numa)
                .hash(&mut state);
        }
        (Arc::as_ptr(&self.links).addr(), self.tier).hash(&mut state);
        state.finish()
    }
}

/// Adds what pods take.
pub(crate) fn hold(cards: &mut [Card], all_taken: impl Iterator<Item = Taken>) {
    for taken in all_taken {
        let Some(Card { held, free_slots, .. }) = cards.get_mut(taken.card) else { continue };
        held.memory = held.memory.saturating_add(taken.share.memory);
        held.cores = held.cores.saturating_add(taken.share.cores);
        held.exclusive |= taken.share.exclusive;
        held.pods = held.pods.saturating_add(1);
        *free_slots = free_slots.saturating_sub(taken.slots);
    }
}
