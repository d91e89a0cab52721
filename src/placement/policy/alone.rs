//! What a plan costs that puts one claim on one card, and what every plan costs at least.

use divvy_contract::annotation::PolicyName;
use divvy_contract::{Memory, Share};

use super::fragmentation::{Free, Mix, Prospects};
use super::topology::FreeSets;
use super::{Cost, Criterion, Policy, binpack, random, spread};
use crate::card::Card;
use crate::links::Links;

/// What decides about one card and doesn't depend on the pod.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    /// Physical memory.
    pub(crate) memory: Memory,
    free: Free,
    /// One of the plain count.
    pub(crate) is_plain: bool,
    emptiness: u16,
    leftover: u64,
    links_lost: u64,
}

/// What decides about plans on one node and doesn't depend on the pod.
#[derive(Clone, Debug)]
pub(crate) struct Spots {
    pub(crate) spots: Box<[Spot]>,
    prospects: Prospects,
}

// === impl Spot ===

impl Spot {
    fn new(card: &Card, links_lost: u64) -> Self {
        Self {
            memory: card.memory,
            free: Free::of(card),
            is_plain: card.profile.is_none(),
            emptiness: u16::try_from(binpack::emptiness(card)).unwrap_or(u16::MAX),
            leftover: binpack::leftover(card),
            links_lost,
        }
    }

    /// Whether the card would take the share if nothing else were placed.
    pub(crate) fn takes(&self, share: &Share) -> bool {
        self.free.fits(share)
    }
}

// === impl Spots ===

impl Spots {
    pub(crate) fn new(cards: &[Card], links: &Links, mix: &Mix) -> Self {
        let mut free_sets = FreeSets::new(cards, links);
        let mut lost = |at| free_sets.lost(links, &[(at, Share::default())]);
        let spots = cards.iter().enumerate().map(|(at, card)| Spot::new(card, lost(at))).collect();
        Self { spots, prospects: Prospects::new(cards, &mix.requests) }
    }

    /// As [`Judge::cost`](super::Judge::cost) of a plan that puts the share on this card, and nothing else.
    pub(crate) fn cost(&self, cards: &[Card], policy: &Policy, at: usize, share: &Share) -> Cost {
        let spot = &self.spots[at];
        let stranded = || self.prospects.lost(spot.memory, spot.free, share);
        match policy.name {
            PolicyName::Binpack => [0, spot.emptiness.into(), 0, spot.links_lost, 0],
            PolicyName::Spread => [0, spread::crowding(&cards[at], share), 0, spot.links_lost, 0],
            PolicyName::Random => [0, random::chance_of(policy.seed, &cards[at]), 0, 0, 0],
            PolicyName::LeastFragmentation => [0, stranded(), spot.leftover, 0, spot.links_lost],
            PolicyName::Topology => [0, 0, spot.links_lost, spot.leftover, 0],
        }
    }

    /// What every plan costs at least that puts shares on so many of these cards, whatever else it does: criteria that
    /// add up card by card, each at its least.
    pub(crate) fn least(&self, cards: &[Card], policy: &Policy, taking: &[(usize, Share)], wanted: usize) -> Cost {
        let mut least = Cost::default();
        for (least, criterion) in least.iter_mut().zip(Criterion::of(policy.name)) {
            let of_card = |(at, share): &(usize, Share)| {
                let spot = &self.spots[*at];
                match criterion {
                    Criterion::Emptiness => spot.emptiness.into(),
                    Criterion::Leftover => spot.leftover,
                    Criterion::Crowding => spread::crowding(&cards[*at], share),
                    Criterion::Stranding => self.prospects.least(spot.memory, spot.free, share),
                    _ => 0,
                }
            };
            let mut costs: Vec<u64> = taking.iter().map(of_card).collect();
            costs.sort_unstable();
            let sum = costs.iter().take(wanted).fold(0, |sum: u64, cost| sum.saturating_add(*cost));
            *least = if matches!(criterion, Criterion::Stranding) { self.prospects.in_buckets(sum) } else { sum };
        }
        least
    }
}
