//! What is counted.

use super::machine::bandwidth;
use super::optimum::Optimum;
use super::{CardSet, Machine};

/// Of requests that were placed, if nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Requests that found too few cards free.
    pub(crate) refused: u64,
    /// All.
    placed: u64,
    /// Those of several cards; what follows is of these.
    several: u64,
    /// No set of the free cards had a better worst link.
    best_now: u64,
    /// No set of all cards has one.
    best_ever: u64,
    /// Bandwidth of the worst link below that of the best set of the free cards, as a part of the latter, summed up.
    regret: f64,
    /// The same below that of the best set of all cards.
    shortfall: f64,
    /// Sets of two and of four cards, as good as the empty machine's best, that later requests could get at once; summed up
    /// over the moments after each placement.
    left: [u64; 2],
}

// === impl Tally ===

impl Tally {
    pub(crate) fn count(&mut self, machine: &Machine, optimum: &mut Optimum<'_>, free: CardSet, set: CardSet) {
        self.placed += 1;
        for (left, size) in self.left.iter_mut().zip([2, 4]) {
            *left += u64::from(optimum.apart(free & !set, size));
        }
        let size = set.count_ones();
        if size < 2 {
            return;
        }
        let (got, now, ever) = (machine.worst_link(set), optimum.best(free, size), optimum.best(machine.all(), size));
        self.several += 1;
        self.best_now += u64::from(got == now);
        self.best_ever += u64::from(got == ever);
        self.regret += 1.0 - bandwidth(got) / bandwidth(now);
        self.shortfall += 1.0 - bandwidth(got) / bandwidth(ever);
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            refused: self.refused + other.refused,
            placed: self.placed + other.placed,
            several: self.several + other.several,
            best_now: self.best_now + other.best_now,
            best_ever: self.best_ever + other.best_ever,
            regret: self.regret + other.regret,
            shortfall: self.shortfall + other.shortfall,
            left: [self.left[0] + other.left[0], self.left[1] + other.left[1]],
        }
    }

    /// Requests of several cards that got a set whose worst link is as good as that of any set of the free cards, in percent.
    pub(crate) fn best_now_pct(&self) -> f64 {
        100.0 * self.of_several(self.best_now as f64)
    }

    /// Requests of several cards that got a set whose worst link is as good as that of any set of all cards, in percent.
    pub(crate) fn best_ever_pct(&self) -> f64 {
        100.0 * self.of_several(self.best_ever as f64)
    }

    /// How much slower the worst link is than that of the best set of the free cards, in percent, on average over requests of
    /// several cards.
    pub(crate) fn regret_pct(&self) -> f64 {
        100.0 * self.of_several(self.regret)
    }

    /// The same against the best set of all cards: what earlier choices cost, and what couldn't be helped.
    pub(crate) fn shortfall_pct(&self) -> f64 {
        100.0 * self.of_several(self.shortfall)
    }

    /// How many requests of two and of four cards could get sets, after a placement and at once, that are as good as the best
    /// of all cards; on average.
    pub(crate) fn left(&self) -> [f64; 2] {
        self.left.map(|left| left as f64 / self.placed.max(1) as f64)
    }

    fn of_several(&self, sum: f64) -> f64 {
        sum / self.several.max(1) as f64
    }
}
