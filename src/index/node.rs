//! A node as readers see it: made anew at every change, never changed.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::Arc;

use divvy_api::{ContainerRequest, MigProfile, Tier};
use divvy_placement::{Card, Held, Links, NoPlan, Plan, Reason, Remains, Taken, plan, summary};
use foldhash::fast::FixedState;

use crate::demand::Demand;
use crate::question::Question;
use crate::report::Ailments;

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
    /// Free thousandths of a CPU core; `None` if it isn't known.
    pub cpu_milli: Option<u32>,
    /// Revision of its ledger that is shown.
    pub ledger_revision: u64,
    /// Of each card, the number of its kind.
    pub(crate) hardware: Arc<[u16]>,
    pub(crate) ailments: Ailments,
    pub(crate) slots_per_card: u32,
}

/// Why a pod finds no cards on a node.
#[derive(Clone, Debug)]
pub(crate) struct WhyNot {
    /// In a line.
    pub(crate) reason: Arc<str>,
    /// The container that finds none, if it is a matter of cards.
    pub(crate) container: Option<String>,
    /// By position, as far as it is a matter of single cards; `None`: this card alone would do.
    pub(crate) of_cards: Vec<Option<Reason>>,
}

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

    /// The node as it would be without what it has promised a pod, which it hasn't got yet.
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
            Tier::Mig => "tier mig wanted, the node has no MIG instances".into(),
            _ => format!("tier {wanted} wanted, the node enforces by {}", self.tier).into(),
        });
        let host_memory = || {
            let why = || format!("oversubscribe wanted, tier {} can't count host memory against the pod", self.tier);
            demand.preferences.oversubscribe.then(|| why().into())
        };
        tier.or_else(host_memory)
    }

    /// Why the pod finds no cards here; `None` if it does.
    pub(crate) fn why_not(&self, question: &Question<'_>) -> Option<Arc<str>> {
        self.plan(&self.cards, question).err().map(|why_not| why_not.reason)
    }

    /// Why the pod would find none even if nobody held any and all were sound; `None` if it might. A node that doesn't say
    /// which cards it has may have any.
    pub(crate) fn why_never(&self, question: &Question<'_>) -> Option<WhyNot> {
        if self.is_silent() {
            return None;
        }
        if let Some(reason) = self.never(question.demand) {
            return Some(WhyNot::by_node(reason));
        }
        let free = |card: Card| Card { healthy: true, ..card };
        let cards: Vec<Card> = self.cards_without(|_| true).into_iter().map(free).collect();
        self.place(&cards, question).err().filter(|why_not| why_not.container.is_some())
    }

    /// The best plan on these cards of the node.
    pub(crate) fn plan(&self, cards: &[Card], question: &Question<'_>) -> Result<Plan, WhyNot> {
        match self.refusal(question.demand) {
            Some(reason) => Err(WhyNot::by_node(reason)),
            None => self.place(cards, question),
        }
    }

    /// The same, whether the node serves the pod or not.
    fn place(&self, cards: &[Card], question: &Question<'_>) -> Result<Plan, WhyNot> {
        if let Some(too_few) =
            question.demand.containers.iter().find_map(|container| self.too_few_for(container, question.demand))
        {
            return Err(too_few);
        }
        plan(cards, &self.links, &question.demand.request(), &question.policies.cards).map_err(|none| match none {
            NoPlan::Nothing { container, reasons, .. } => {
                WhyNot { reason: summary(&reasons).into(), container: Some(container), of_cards: reasons }
            }
            NoPlan::GaveUp { .. } => WhyNot::by_node("no plan found in the time that there is".into()),
        })
    }

    /// Whether it has cards such as the container asks for, but fewer. What is free of them is no matter then.
    fn too_few_for(&self, container: &ContainerRequest, demand: &Demand) -> Option<WhyNot> {
        let ContainerRequest { name, profile, request, .. } = container;
        let wanted = request.as_ref()?.cards as usize;
        let by_hardware = demand.preferences.wants_instances();
        let is_such = |card: &&Card| card.profile == *profile && (card.id.is_instance() || !by_hardware);
        let has = self.cards.iter().filter(is_such).count();
        let reason = match profile {
            _ if has == 0 || has >= wanted => return None,
            None if by_hardware => format!("{wanted} MIG instances wanted, the node has {has}"),
            None => format!("{wanted} cards wanted, the node has {has}"),
            Some(profile) => format!("{wanted} instances of {profile} wanted, the node has {has}"),
        };
        Some(WhyNot { reason: reason.into(), container: Some(name.clone()), of_cards: Vec::new() })
    }

    /// Whether the pod would find cards here if the pods of lower priority were gone.
    pub(crate) fn may_be_cleared_for(&self, question: &Question<'_>) -> bool {
        let lower = |holder: &Holder| holder.priority < question.demand.priority;
        self.refusal(question.demand).is_none()
            && self.holders.iter().any(lower)
            && question.fits(self, &self.cards_without(lower))
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

// === impl WhyNot ===

impl WhyNot {
    /// It is no matter of single cards.
    fn by_node(reason: Arc<str>) -> Self {
        Self { reason, container: None, of_cards: Vec::new() }
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
