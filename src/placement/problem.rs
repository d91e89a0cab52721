//! Placement problem: a node's cards, and a pod as the kubelet is going to admit it.

use std::collections::BTreeSet;

use divvy_api::annotation::{Numa, Preferences};
use divvy_api::pod::ContainerKind;
use divvy_api::request::Sharing;
use divvy_api::{Card, Links, Memory, NodeCards, Share};

use crate::eligible::Wishes;
use crate::fit::{Load, On, Slot, alone};
use crate::node_state::{Held, NodeState};
use crate::pod::{Plan, PodRequest};
use crate::reason::Reason;
use crate::reuse::{self, Admission, Step};

pub(crate) struct Problem<'a> {
    pub(crate) state: &'a NodeState,
    pub(crate) pod: PodRequest<'a>,
    pub(crate) steps: Vec<Step>,
    /// For each pool the cards whose slots init containers with an allocation have left in it.
    lent: Vec<BTreeSet<usize>>,
    /// By card.
    card_states: Vec<CardState>,
    pub(crate) sharing: Sharing,
    /// Host memory that the pod may have, with what it holds already.
    host_memory: Memory,
}

/// What is certain about one card.
struct CardState {
    memory_capacity: Memory,
    /// Load of the containers that hold cards already.
    allocated: Load,
    /// Nothing new of this pod is put on it.
    barred: Option<Reason>,
}

/// How a pod's requests become shares of a node's cards: whole cards where the hardware must enforce its limits, or where the
/// node allocates no parts.
pub fn sharing(node: &NodeCards, preferences: &Preferences) -> Sharing {
    preferences.sharing(node.undivided, node.oversubscription.map(|of| of.memory_scale))
}

// === impl CardState ===

impl CardState {
    fn new(barred: Option<Reason>, card: &Card) -> Self {
        Self { memory_capacity: card.memory_capacity(), allocated: Load::default(), barred }
    }
}

// === impl Problem ===

impl<'a> Problem<'a> {
    pub(crate) fn new(state: &'a NodeState, pod: &PodRequest<'a>) -> Self {
        let wishes = Wishes::new(pod.preferences);
        let cards = state.cards();
        let mut card_states: Vec<CardState> =
            cards.iter().map(|card| CardState::new(wishes.barred(card, &state.node), card)).collect();
        let sharing = sharing(&state.node, pod.preferences);
        for (at, request, held) in reuse::allocated(pod) {
            for card in held.into_iter().filter(|card| *card < cards.len()) {
                let share = pod.share(at, card).unwrap_or_else(|| request.share_of(cards[card].memory, sharing));
                let memory_capacity = card_states[card].memory_capacity;
                let on = On { card: &cards[card], held: &state.held[card], memory_capacity };
                card_states[card].allocated.allocate(on, pod.containers[at].kind, share);
            }
        }
        let held: Memory = card_states.iter().map(|card_state| card_state.allocated.peak.host).sum();
        let host_memory = state.host_memory_left().max(held);
        let Admission { steps, lent } = Admission::new(pod);
        Self { state, pod: *pod, steps, lent, card_states, sharing, host_memory }
    }

    /// The node's cards.
    pub(crate) fn cards(&self) -> &'a [Card] {
        &self.state.node.cards
    }

    /// Links between the node's cards.
    pub(crate) fn links(&self) -> &'a Links {
        &self.state.node.links
    }

    /// A card with what other pods hold of it.
    fn on(&self, card: usize) -> On<'a> {
        let memory_capacity = self.card_states[card].memory_capacity;
        On { card: &self.cards()[card], held: &self.state.held[card], memory_capacity }
    }

    /// The pod's share of a card if these steps choose it, or what breaks in the worst draw.
    pub(crate) fn fit(&self, card: usize, chosen_by: &[usize]) -> Result<Share, Reason> {
        self.load(card, chosen_by).map(|load| load.peak)
    }

    /// The pod's load on a card if these steps choose it.
    pub(crate) fn load(&self, card: usize, chosen_by: &[usize]) -> Result<Load, Reason> {
        self.load_until(card, chosen_by).map_err(|(_, reason)| reason)
    }

    /// The pod's load on a card if these steps choose it, or the step that overfills it.
    fn load_until(&self, card: usize, chosen_by: &[usize]) -> Result<Load, (usize, Reason)> {
        let mut load = self.card_states[card].allocated;
        for (index, step) in self.steps.iter().enumerate() {
            let slot = match step {
                _ if chosen_by.contains(&index) => Slot::New,
                Step { drawn: 0, .. } => continue,
                _ if !self.is_of_kind(card, index) => continue,
                _ if !load.is_pooled() => continue,
                Step { drains: true, .. } => Slot::Drained,
                Step { .. } => Slot::Drawn,
            };
            let admitted = self.share(card, index).and_then(|share| load.admit(self.on(card), step.kind, share, slot));
            admitted.map_err(|reason| (index, reason))?;
        }
        Ok(load)
    }

    /// What a step takes of a card; an error if that isn't the part that it asks for, and the card is smaller than the part, or if
    /// the card isn't for parts.
    fn share(&self, card: usize, step: usize) -> Result<Share, Reason> {
        let request = &self.steps[step].request;
        let memory = self.cards()[card].memory;
        if self.sharing != Sharing::Part && !request.is_within(memory) {
            return Err(Reason::TooSmall { wanted: request.memory.on_card(memory), capacity: memory });
        }
        let known = self.pod.share(self.steps[step].container, card);
        let share = known.unwrap_or_else(|| request.share_of(memory, self.sharing));
        let is_refused = known.is_none() && !share.exclusive && !self.cards()[card].takes_parts();
        if is_refused { Err(Reason::ComputeMode) } else { Ok(share) }
    }

    /// Why a pod with these shares, one a card, doesn't fit on the node if the cards suffice. Each counts in full, though
    /// not all of the kubelet's draws may come together.
    pub(crate) fn lacks_host_memory(&self, shares: impl Iterator<Item = Share>) -> Option<Reason> {
        self.exceeds_host_memory(shares.map(|share| share.host).sum())
    }

    fn exceeds_host_memory(&self, wanted: Memory) -> Option<Reason> {
        (wanted > self.host_memory).then_some(Reason::HostMemory { wanted, free: self.host_memory })
    }

    /// Reason of a step that is to have as many cards like this one, beside those that the steps choose already.
    pub(crate) fn lacks_host_memory_for(&self, step: usize, card: usize, chosen_by: &[Vec<usize>]) -> Option<Reason> {
        let share = self.share(card, step).ok().filter(|share| !share.host.is_zero())?;
        let chosen = (0..self.cards().len()).filter_map(|card| self.fit(card, &chosen_by[card]).ok());
        let beside: Memory = chosen.map(|share| share.host).sum();
        self.exceeds_host_memory(beside.saturating_add(share.host.saturating_mul(self.steps[step].chosen)))
    }

    /// Whether a step's cards are held by nobody else.
    pub(crate) fn is_exclusive(&self, step: usize) -> bool {
        self.sharing.is_whole() || self.steps[step].request.is_exclusive()
    }

    /// The steps that choose each card in a plan. Positions that don't exist are passed over.
    pub(crate) fn chosen_by(&self, plan: &Plan) -> Vec<Vec<usize>> {
        let mut chosen_by = vec![Vec::new(); self.cards().len()];
        for (index, step) in self.steps.iter().enumerate() {
            let chosen = plan.containers.get(step.container).map_or(&[][..], |container| &container.chosen);
            for card in chosen.iter().filter(|card| **card < self.cards().len()) {
                chosen_by[*card].push(index);
            }
        }
        chosen_by
    }

    /// Why a card is out of the question for a step, whatever else is placed.
    pub(crate) fn barred(&self, card: usize) -> Option<&Reason> {
        self.card_states[card].barred.as_ref()
    }

    /// Whether a card is one of those that a step asks for.
    pub(crate) fn is_of_kind(&self, card: usize, step: usize) -> bool {
        self.cards()[card].requested_profile() == self.pod.containers[self.steps[step].container].profile.as_ref()
    }

    /// Whether a card can take a step's request by itself.
    pub(crate) fn takes(&self, card: usize, step: usize) -> bool {
        self.barred(card).is_none() && self.is_of_kind(card, step) && self.alone(card, step).is_ok()
    }

    fn alone(&self, card: usize, step: usize) -> Result<(), Reason> {
        let share = self.share(card, step)?;
        alone(self.on(card), share)?;
        self.lacks_host_memory([share].into_iter()).map_or(Ok(()), Err)
    }

    /// Why a card can't take a step's request by itself.
    pub(crate) fn refusal(&self, card: usize, step: usize) -> Option<Reason> {
        let other_kind = (!self.is_of_kind(card, step)).then_some(Reason::Kind);
        self.barred(card).cloned().or(other_kind).or_else(|| self.alone(card, step).err())
    }

    /// Cards that the kubelet may draw from at a step, given which steps chose each card.
    pub(crate) fn pool(&self, step: usize, chosen_by: &[Vec<usize>]) -> Vec<usize> {
        if self.steps[step].drawn == 0 {
            return Vec::new();
        }
        let beyond = self.lent[self.steps[step].pool].iter().copied().filter(|card| *card >= chosen_by.len());
        let pooled = |card: &usize| self.may_pool(step, *card, chosen_by.get(*card).map_or(&[], Vec::as_slice));
        (0..chosen_by.len()).chain(beyond).filter(pooled).collect()
    }

    fn may_pool(&self, step: usize, card: usize, chosen_by: &[usize]) -> bool {
        let Step { pool, pooled_from, pooled_allocated, .. } = self.steps[step];
        let is_fed = |by: &usize| self.steps[*by].pool == pool && self.steps[*by].kind == ContainerKind::Init;
        let lends = |by: &usize| (pooled_from..step).contains(by) && is_fed(by);
        (pooled_allocated && self.lent[pool].contains(&card)) || chosen_by.iter().any(lends)
    }

    /// Cards on which something of the pod may be put.
    pub(crate) fn open_cards(&self) -> Vec<usize> {
        (0..self.cards().len()).filter(|card| self.card_states[*card].barred.is_none()).collect()
    }

    /// The first card that is the same to this pod; never another one for a card that it holds already.
    pub(crate) fn first_alike(&self, card: usize) -> usize {
        let fresh = |card: usize| self.card_states[card].allocated.is_fresh();
        let alike = |other: &usize| fresh(*other) && fresh(card) && self.facts(*other) == self.facts(card);
        (0..card).find(alike).unwrap_or(card)
    }

    /// All that makes a card another one to this pod, if it holds nothing of it.
    fn facts(&self, card: usize) -> impl PartialEq {
        let is_open = self.card_states[card].barred.is_none();
        let On { card, held, .. } = self.on(card);
        let Card { memory, scales, numa, compute_mode, .. } = card;
        let free_slots = held.free_slots(card);
        let held = Held { slots: 0, busy: held.busy_steps(), ..*held };
        (card.requested_profile(), memory, scales, numa, compute_mode, free_slots, held, is_open)
    }

    /// The pod's shares of cards that it holds already, with what later containers may draw there.
    pub(crate) fn allocated_shares(&self) -> Vec<(usize, Share)> {
        let held = (0..self.cards().len()).filter(|card| !self.card_states[*card].allocated.is_fresh());
        held.map(|card| (card, self.fit(card, &[]).unwrap_or(self.card_states[card].allocated.peak))).collect()
    }

    /// The step that breaks a card which init containers with an allocation lent, by being fed from it.
    pub(crate) fn drawn_in_vain(&self, card: usize) -> Option<usize> {
        self.load_until(card, &[]).err().map(|(step, _)| step)
    }

    /// Whether a card isn't the one of which the pod has something already, and must have everything.
    pub(crate) fn is_apart(&self, card: usize, mut touched: impl Iterator<Item = usize>) -> bool {
        self.pod.preferences.same_card && touched.any(|touched| touched != card)
    }

    /// Whether a step's cards must stand on one NUMA node.
    pub(crate) fn numa_strict(&self, step: usize) -> bool {
        self.steps[step].request.cards > 1 && self.pod.preferences.numa == Some(Numa::Strict)
    }

    /// Whether the containers of two steps are surely alive at the same time.
    pub(crate) fn run_together(&self, a: usize, b: usize) -> bool {
        [a, b].iter().all(|step| self.steps[*step].kind != ContainerKind::Init)
    }

    /// Where a card stands; `None` if that isn't known.
    pub(crate) fn numa(&self, card: usize) -> Option<u32> {
        self.cards().get(card).and_then(|card| card.numa)
    }

    /// Whether all of these stand on one known NUMA node.
    pub(crate) fn on_one_node(&self, cards: &[usize]) -> bool {
        let first = cards.first().and_then(|card| self.numa(*card));
        cards.is_empty() || (first.is_some() && cards.iter().all(|card| self.numa(*card) == first))
    }

    /// Cards that come to a step from the slots of init containers with an allocation at most; the rest of its request's are chosen by
    /// open steps.
    pub(crate) fn lent(&self, step: usize) -> usize {
        self.lent[self.steps[step].pool].len()
    }
}
