//! What a plan costs that puts one claim on one card, and what every plan costs at least.

use divvy_contract::annotation::PolicyName;
use divvy_contract::{Cores, Memory, Share};

use super::fragmentation::{Free, KindSet, Mix, Needs, Prospects};
use super::topology::FreeSets;
use super::{Cost, Criterion, Policy, binpack, random, spread};
use crate::card::Card;
use crate::links::Links;

/// What decides about one card beside what is free of it, and doesn't depend on the pod.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    /// Physical memory.
    pub(crate) memory: Memory,
    pub(crate) memory_capacity: Memory,
    pub(super) cores_capacity: Cores,
    pub(super) is_exclusive: bool,
    emptiness: u16,
    links_lost: u64,
    /// The kinds of requests that could use the card.
    users: KindSet,
}

/// One card, seen by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lot<'a> {
    pub(crate) free: &'a Free,
    /// What the kinds of requests weigh together that could use it.
    pub(crate) users: u64,
    pub(crate) spot: &'a Spot,
    pub(crate) prospects: &'a Prospects,
    /// What the kinds of expected requests need.
    pub(crate) ahead: Option<&'a Needs>,
}

// === impl Spot ===

impl Spot {
    /// `links_lost` goes with the card when it is used.
    fn new(card: &Card, links_lost: u64, users: KindSet) -> Self {
        Self {
            memory: card.memory,
            memory_capacity: card.memory_capacity,
            cores_capacity: card.cores_capacity,
            is_exclusive: card.held.exclusive,
            emptiness: u16::try_from(binpack::emptiness(card)).unwrap_or(u16::MAX),
            links_lost,
            users,
        }
    }
}

/// What is free of the cards of a node, what the kinds of requests weigh that could use each, and the rest.
pub(crate) fn spots(cards: &[Card], links: &Links, mix: &Mix) -> (Vec<Free>, Vec<u64>, Vec<Spot>, Prospects) {
    let (mut free_sets, prospects) = (FreeSets::new(cards, links), Prospects::new(cards, &mix.requests));
    let mut lost = |at| free_sets.lost(links, &[(at, Share::default())]);
    let free: Vec<Free> = cards.iter().map(Free::of).collect();
    let users = cards.iter().zip(&free).map(|(card, free)| prospects.users(card.memory, *free));
    let (sets, weights): (Vec<KindSet>, Vec<u64>) = users.unzip();
    let spots = cards.iter().zip(sets).enumerate().map(|(at, (card, users))| Spot::new(card, lost(at), users));
    let spots = spots.collect();
    (free, weights, spots, prospects)
}

// === impl Lot ===

impl Lot<'_> {
    /// As [`Judge::cost`](super::Judge::cost) of a plan that puts the share on this card, and nothing else.
    pub(crate) fn cost<'c>(self, policy: &Policy, share: &Share, card: impl Fn() -> &'c Card) -> Cost {
        let Self { free, users, spot, prospects, ahead } = self;
        let stranded = || match ahead {
            Some(needs) => prospects.lost_of(needs, (spot.users, users), spot.memory, *free, share),
            None => prospects.lost(spot.memory, *free, share),
        };
        match policy.name {
            PolicyName::Binpack => [0, spot.emptiness.into(), 0, spot.links_lost, 0],
            PolicyName::Spread => [0, spread::crowding_of(spot, free, share), 0, spot.links_lost, 0],
            PolicyName::Random => [0, random::chance_of(policy.seed, card()), 0, 0, 0],
            PolicyName::LeastFragmentation => [0, stranded(), free.leftover(), 0, spot.links_lost],
            PolicyName::Topology => [0, 0, spot.links_lost, free.leftover(), 0],
        }
    }

    /// Whether that may be no more than `most` by the second and third criteria; the first is nothing. Takes less time.
    /// Least fragmentation has a [`Bar`](super::fragmentation::Bar).
    pub(crate) fn may_cost(self, policy: &Policy, share: &Share, most: [u64; 2]) -> bool {
        let Self { free, spot, .. } = self;
        match policy.name {
            PolicyName::Binpack => u64::from(spot.emptiness) <= most[0],
            PolicyName::Spread => spread::crowding_of(spot, free, share) <= most[0],
            PolicyName::Random | PolicyName::LeastFragmentation => true,
            PolicyName::Topology => [0, spot.links_lost] <= most,
        }
    }

    /// What the card adds at least to a criterion that adds up card by card, whatever else a plan does.
    fn least(self, criterion: Criterion, share: &Share) -> u64 {
        let Self { free, users, spot, prospects, ahead } = self;
        match criterion {
            Criterion::Emptiness => spot.emptiness.into(),
            Criterion::Leftover => free.leftover(),
            Criterion::Crowding => spread::crowding_of(spot, free, share),
            Criterion::Stranding => match ahead {
                Some(needs) => needs.lost((spot.users, users), spot.memory, *free, share).0,
                None => prospects.least(spot.memory, *free, share),
            },
            _ => 0,
        }
    }
}

/// What every plan costs at least that puts shares on `wanted` of these cards, whatever else it does: criteria that add
/// up card by card, each at its least.
pub(crate) fn least(policy: &Policy, prospects: &Prospects, taking: &[(Lot<'_>, Share)], wanted: usize) -> Cost {
    let mut least = Cost::default();
    for (least, criterion) in least.iter_mut().zip(Criterion::of(policy.name)) {
        let adds_up = match criterion {
            Criterion::Emptiness | Criterion::Leftover | Criterion::Crowding => true,
            Criterion::Stranding => !prospects.is_empty(),
            _ => false,
        };
        if !adds_up {
            continue;
        }
        let mut costs: Vec<u64> = taking.iter().map(|(lot, share)| lot.least(*criterion, share)).collect();
        costs.sort_unstable();
        let sum = costs.iter().take(wanted).fold(0, |sum: u64, cost| sum.saturating_add(*cost));
        *least = if matches!(criterion, Criterion::Stranding) { prospects.in_buckets(sum) } else { sum };
    }
    least
}
