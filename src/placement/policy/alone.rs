//! What a plan costs that puts one request on one card, and what every plan costs at least.

use divvy_api::annotation::PolicyName;
use divvy_api::{Card, Cores, Memory, Share};

use super::topology::FreeSets;
use super::{Cost, Criterion, Policy, binpack, random, spread};
use crate::card_free::CardFree;
use crate::node_state::{Held, NodeState};

/// What decides about one card beside what is free of it, and doesn't depend on the pod.
#[derive(Clone, Debug)]
pub(crate) struct CardTraits {
    /// Physical memory.
    pub(crate) memory: Memory,
    pub(crate) memory_capacity: Memory,
    pub(super) cores_capacity: Cores,
    pub(super) is_exclusive: bool,
    emptiness: u16,
    links_lost: u64,
}

/// One card, seen by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CandidateCard<'a> {
    pub(crate) free: &'a CardFree,
    pub(crate) traits: &'a CardTraits,
}

// === impl CardTraits ===

impl CardTraits {
    /// `links_lost` goes with the card when it is used.
    pub(super) fn new(card: &Card, held: &Held, links_lost: u64) -> Self {
        Self {
            memory: card.memory,
            memory_capacity: card.memory_capacity(),
            cores_capacity: card.cores_capacity(),
            is_exclusive: held.exclusive,
            emptiness: u16::try_from(binpack::emptiness(card, held)).unwrap_or(u16::MAX),
            links_lost,
        }
    }
}

/// What is free of the cards of a node, and the rest.
pub(crate) fn traits(state: &NodeState) -> (Vec<CardFree>, Vec<CardTraits>) {
    let mut free_sets = FreeSets::new(state);
    let mut lost = |at| free_sets.lost(&state.node.links, &[(at, Share::default())]);
    let traits = state.each().enumerate().map(|(at, (card, held))| CardTraits::new(card, held, lost(at)));
    (state.each().map(|(card, held)| CardFree::new(card, held)).collect(), traits.collect())
}

// === impl CandidateCard ===

impl CandidateCard<'_> {
    /// As [`Judge::cost`](super::Judge::cost) of a plan that puts the share on this card, and nothing else.
    pub(crate) fn cost<'c>(self, policy: &Policy, share: &Share, card: impl Fn() -> &'c Card) -> Cost {
        let Self { free, traits } = self;
        let busy = u64::from(free.busy);
        match policy.name {
            PolicyName::Binpack => [0, busy, traits.emptiness.into(), 0, traits.links_lost],
            PolicyName::Spread => [0, busy, spread::crowding(traits, free, share), 0, traits.links_lost],
            PolicyName::Random => [0, random::chance_of(policy.seed, card()), 0, 0, 0],
            PolicyName::LeastFragmentation => [0, busy, free.leftover(), 0, traits.links_lost],
            PolicyName::Topology => [0, busy, 0, traits.links_lost, free.leftover()],
        }
    }

    /// Whether that may be no more than `most` by the second to the fourth criterion; the first is nothing. Takes less
    /// time.
    pub(crate) fn may_cost(self, policy: &Policy, share: &Share, most: [u64; 3]) -> bool {
        let Self { free, traits } = self;
        let busy = u64::from(free.busy);
        let second_and_third = [most[0], most[1]];
        match policy.name {
            PolicyName::Binpack => [busy, traits.emptiness.into()] <= second_and_third,
            PolicyName::Spread => [busy, spread::crowding(traits, free, share)] <= second_and_third,
            PolicyName::LeastFragmentation => [busy, free.leftover()] <= second_and_third,
            PolicyName::Random => true,
            PolicyName::Topology => [busy, 0, traits.links_lost] <= most,
        }
    }

    /// What the card adds to a criterion that adds up card by card, whatever else a plan does.
    pub(super) fn adds(self, criterion: Criterion, share: &Share) -> u64 {
        let Self { free, traits } = self;
        match criterion {
            Criterion::Busy => free.busy.into(),
            Criterion::Emptiness => traits.emptiness.into(),
            Criterion::Leftover => free.leftover(),
            Criterion::Crowding => spread::crowding(traits, free, share),
            _ => 0,
        }
    }
}

/// What every plan costs at least that puts shares on `wanted` of these cards, whatever else it does: criteria that add
/// up card by card, each at its least.
pub(crate) fn least(policy: &Policy, taking: &[(CandidateCard<'_>, Share)], wanted: usize) -> Cost {
    let mut least = Cost::default();
    for (least, criterion) in least.iter_mut().zip(Criterion::of_policy(policy.name)) {
        use Criterion::{Busy, Crowding, Emptiness, Leftover};
        if !matches!(criterion, Busy | Emptiness | Leftover | Crowding) {
            continue;
        }
        let mut costs: Vec<u64> = taking.iter().map(|(candidate, share)| candidate.adds(*criterion, share)).collect();
        costs.sort_unstable();
        *least = costs.iter().take(wanted).fold(0, |sum: u64, cost| sum.saturating_add(*cost));
    }
    least
}
