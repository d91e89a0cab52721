//! A node as readers see it: made anew at every change, never changed.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::Arc;

use divvy_api::{MigProfile, Tier};
use divvy_placement::{Card, Held, Links, Remains, Taken};
use foldhash::fast::FixedState;

use crate::demand::Demand;

/// The cards of one node, with what its ledger says is held and what was reserved on top.
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
    /// Pods that hold or were reserved shares.
    pub holders: Box<[Holder]>,
    /// Why it takes no pods, whatever is free.
    pub closed: Option<Arc<str>>,
    /// How it enforces shares, at least.
    pub tier: Tier,
    /// Free thousandths of a CPU core; `None` if it isn't known.
    pub cpu_milli: Option<u32>,
    /// Revision of its ledger that is shown.
    pub ledger_revision: u64,
    /// Of each card, the number of its kind.
    pub(crate) hardware: Arc<[u16]>,
    pub(crate) unhealthy: UnhealthyReasons,
    pub(crate) slots_per_card: u32,
}

/// Reasons why cards take no new shares, by position; only of those that take none.
pub(crate) type UnhealthyReasons = Arc<BTreeMap<usize, Arc<str>>>;

/// A pod on a node.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Its UID.
    pub uid: Arc<str>,
    /// Its priority; the highest where the pod isn't known, so that nobody thinks of evicting it.
    pub priority: i32,
    /// It isn't on the node: room is kept for it.
    pub is_nominated: bool,
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

    /// What is free of it.
    pub(crate) fn remains(&self) -> Remains {
        Remains::new(self.cpu_milli, &self.cards, &self.hardware)
    }

    /// The node as it would be without what it has reserved a pod, which it hasn't got yet.
    pub(crate) fn without(&self, demand: &Demand) -> Self {
        let cards = self.cards_without(|holder| holder.uid == demand.uid).into();
        let cpu_milli = self.cpu_milli.map(|free| free.saturating_add(demand.cpu_milli));
        Self { cards, cpu_milli, ..self.clone() }
    }

    /// Why it doesn't serve the pod now, whatever is free.
    pub fn refusal(&self, demand: &Demand) -> Option<Arc<str>> {
        self.closed.clone().or_else(|| self.never(demand))
    }

    /// Why it will never serve the pod.
    pub(crate) fn never(&self, demand: &Demand) -> Option<Arc<str>> {
        // Where there are instances, whoever wants one has the hardware's tier.
        let has_it = |wanted| wanted <= self.tier || (wanted == Tier::Mig && self.has_instances());
        let tier = demand.preferences.tier.filter(|wanted| !has_it(*wanted));
        let tier = tier.map(|wanted| match wanted {
            Tier::Mig => "tier mig requested, no MIG instances on the node".into(),
            _ => format!("tier {wanted} requested, {} on the node", self.tier).into(),
        });
        let host_memory = || {
            let why = || format!("oversubscribe requested, tier {} can't count host memory against the pod", self.tier);
            demand.preferences.oversubscribe.then(|| why().into())
        };
        tier.or_else(host_memory)
    }

    fn has_instances(&self) -> bool {
        self.cards.iter().any(|card| card.id.is_instance())
    }

    /// Whether it doesn't say which cards it has: it may have any.
    pub(crate) fn is_silent(&self) -> bool {
        self.cards.is_empty() && self.closed.is_some()
    }

    /// A number of its kind of hardware: what one could run when nobody is there, all could.
    pub(crate) fn kind(&self) -> u64 {
        let mut state = FixedState::default().build_hasher();
        for Card { id, model, profile, memory, memory_capacity, cores_capacity, numa, .. } in &self.cards {
            (model, profile.as_ref().map(MigProfile::as_str), id.is_instance(), numa).hash(&mut state);
            (memory.as_mib(), memory_capacity.as_mib(), cores_capacity.units()).hash(&mut state);
        }
        (Arc::as_ptr(&self.links).addr(), self.tier, self.is_silent()).hash(&mut state);
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
