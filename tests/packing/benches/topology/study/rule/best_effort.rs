//! NVIDIA's go-gpuallocator, the best-effort policy, which NVIDIA's device plugin prefers cards by (`besteffort_policy.go`).
//!
//! All free cards are split into sets of the wanted size, in every possible way; cards that are left over make a smaller
//! set, which counts too. The split with the highest sum of scores is taken, and the set of it with the highest score; of
//! equals the first. One card is the first that is free. Links to NVSwitches don't count, as their far end isn't a card.
//!
//! The original may return the smaller set, filled up with nothing; here only whole sets are taken.

use std::collections::HashMap;

use super::super::machine::subsets;
use super::super::{CardSet, Machine};
use super::set_score;

/// The policy on one machine; what was found out is remembered.
pub(crate) struct BestEffort<'m> {
    machine: &'m Machine,
    /// The highest sum for cards that are left to be split into sets of a size.
    sums: HashMap<(CardSet, u32), u64>,
}

// === impl BestEffort ===

impl<'m> BestEffort<'m> {
    pub(crate) fn new(machine: &'m Machine) -> Self {
        Self { machine, sums: HashMap::new() }
    }

    /// The cards that a request gets of these.
    pub(crate) fn choose(&mut self, free: CardSet, wanted: u32) -> CardSet {
        if wanted == 1 {
            return free & free.wrapping_neg();
        }
        // Nobody's cards behind the last one fill up the set of those that are left over.
        let missing = (wanted - free.count_ones() % wanted) % wanted;
        let mut left = free | ((1 << missing) - 1) << self.machine.cards();
        let (mut best, mut most) = (0, 0);
        while left != 0 {
            let sum = self.sum(left, wanted);
            let sets = self.sets(left, wanted);
            let is_best = |set: &CardSet| self.score(*set) + self.sum(left & !set, wanted) == sum;
            let Some(set) = sets.into_iter().find(is_best) else { break };
            let (score, is_whole) = (self.score(set), set & !self.machine.all() == 0);
            if is_whole && score > most {
                (best, most) = (set, score);
            }
            left &= !set;
        }
        best
    }

    fn sum(&mut self, left: CardSet, wanted: u32) -> u64 {
        if left == 0 {
            return 0;
        }
        if let Some(known) = self.sums.get(&(left, wanted)) {
            return *known;
        }
        let sets = self.sets(left, wanted).into_iter();
        let sum = sets.map(|set| self.score(set) + self.sum(left & !set, wanted)).max().unwrap_or(0);
        self.sums.insert((left, wanted), sum);
        sum
    }

    /// Sets with the first of these cards: whole ones, and the one that is filled up.
    fn sets(&self, left: CardSet, wanted: u32) -> Vec<CardSet> {
        let (first, filling) = (left & left.wrapping_neg(), left & !self.machine.all());
        let mut sets: Vec<CardSet> =
            subsets(left & !first, wanted - 1).into_iter().map(|others| first | others).collect();
        sets.retain(|set| [0, filling].contains(&(set & !self.machine.all())));
        sets
    }

    fn score(&self, set: CardSet) -> u64 {
        set_score(self.machine, false, set & self.machine.all())
    }
}
