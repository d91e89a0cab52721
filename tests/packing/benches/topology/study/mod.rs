//! How well cards are linked that requests of whole cards get on one machine, as they come and go: the product's policies
//! beside published rules.
//!
//! ```text
//! machine, seed ──▶ requests ──▶ trial ◀── rule: which of the free cards
//!                                └─▶ tally ◀── optimum: what there was to get
//! ```
//!
//! Whether a request finds enough cards doesn't depend on which ones others got, so all rules see the same requests at the same
//! moments with as many free cards, and what differs is the rules' doing.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts of a few cards and requests: far below 2^53"
)]

mod machine;
pub(crate) mod optimum;
pub(crate) mod requests;
pub(crate) mod rule;
mod tally;

use rand::SeedableRng as _;
use rayon::prelude::*;

use divvy_simulate::Rng;
pub(crate) use machine::Machine;
use optimum::Optimum;
use requests::GpuRequest;
pub(crate) use rule::Name;
use rule::Rule;
pub(crate) use tally::Tally;

/// Positions of cards, one bit each.
pub(crate) type CardSet = u32;

/// How many requests come in one sequence.
pub(crate) const REQUESTS: usize = 200;

/// What comes of one sequence of requests for each of these seeds.
pub(crate) fn study(machine: &Machine, name: Name, seeds: &[u64]) -> Tally {
    // Rules and optima remember what they found out, so sequences go to few workers.
    let trials = |seeds: &[u64]| {
        let mut trial = Trial::new(machine, name);
        for seed in seeds {
            trial.run(*seed);
        }
        trial.tally
    };
    let each = seeds.len().div_ceil(rayon::current_num_threads()).max(1);
    seeds.par_chunks(each).map(trials).reduce(Tally::default, Tally::and)
}

/// One rule on one machine.
struct Trial<'m> {
    machine: &'m Machine,
    optimum: Optimum<'m>,
    rule: Box<dyn Rule + 'm>,
    tally: Tally,
}

// === impl Trial ===

impl<'m> Trial<'m> {
    fn new(machine: &'m Machine, name: Name) -> Self {
        Self { machine, optimum: Optimum::new(machine), rule: name.rule(machine), tally: Tally::default() }
    }

    /// From an empty machine on.
    fn run(&mut self, seed: u64) {
        let mut draws = Rng::seed_from_u64(seed);
        let requests = requests::requests(self.machine.cards(), REQUESTS, &mut draws);
        let (mut free, mut held) = (self.machine.all(), Vec::<(u64, CardSet)>::new());
        for (now, request) in (0..).zip(requests) {
            held.retain(|(until, set)| {
                free |= if *until <= now { *set } else { 0 };
                *until > now
            });
            let GpuRequest { cards, until } = request;
            if free.count_ones() < cards {
                self.tally.refused += 1;
                continue;
            }
            let set = self.rule.choose(free, cards, &mut draws);
            debug_assert!(set & !free == 0 && set.count_ones() == cards, "{set:b} of {free:b} for {cards}");
            self.tally.count(self.machine, &mut self.optimum, free, set);
            free &= !set;
            held.push((until, set));
        }
    }
}
