//! HAMi's `topology-aware` policy for the cards of one node (`Fit`, `computeBestCombination` and `computeWorstSingleCard` in
//! `pkg/device/nvidia/device.go`).
//!
//! Of several cards the set with the highest score; one card is that with the lowest sum over its pairs with the other free
//! ones. Of equals the first. Links to NVSwitches count since they are looked for (`GetNVLink` in `links.go`).

use std::cmp::Reverse;

use super::super::machine::{positions, subsets};
use super::super::{CardSet, Machine};
use super::{pair_score, set_score};

/// The cards that a request gets of these.
pub(crate) fn hami(machine: &Machine, free: CardSet, wanted: u32) -> CardSet {
    if wanted == 1 {
        let score = |card: &usize| -> u64 {
            positions(free).filter(|other| other != card).map(|other| pair_score(machine, true, *card, other)).sum()
        };
        return positions(free).min_by_key(score).map_or(0, |card| 1 << card);
    }
    // Of equals `min_by_key` gives the first.
    subsets(free, wanted).into_iter().min_by_key(|set| Reverse(set_score(machine, true, *set))).unwrap_or(0)
}
