//! Topology: cards that are well linked, and well linked cards left for later.

use std::collections::HashMap;

use divvy_api::links::{CardSet, LINKED_CARDS, Link, Links};
use divvy_api::{Card, Share};

use super::Outcome;
use crate::node_state::{Held, NodeState};
use crate::problem::Problem;

/// How well the cards of each container can be linked at best.
pub(super) struct BestLinks {
    /// By step the cards that it could have if it were alone; none where it makes no difference which.
    open: Vec<CardSet>,
    /// The rank of the best worst link by a set, how many cards it misses, and those that they may be: a search meets the
    /// same again and again.
    best: HashMap<(CardSet, u32, CardSet), Option<u64>>,
}

/// What the cards that nobody holds are worth together.
pub(super) struct FreeSets {
    empty: CardSet,
    worth: u64,
    /// Value of sets met before: a search meets the same few again and again.
    left: HashMap<CardSet, u64>,
}

/// How much worse than the best all pairs of a container's cards are linked, together.
///
/// Twice that and the [links lost](FreeSets::lost) are, but for what is the same for all sets of a size, the links between
/// the set and the cards that stay free. Those within the set aren't lost: the container uses them, and once it ends they are
/// back in one piece.
pub(super) fn looseness(links: &Links, set: &[usize]) -> u64 {
    let pairs = set.iter().enumerate().flat_map(|(at, a)| set[at + 1..].iter().map(move |b| (*a, *b)));
    pairs.map(|(a, b)| Link::BEST_RANK - links.get(a, b).rank()).sum()
}

// === impl BestLinks ===

impl BestLinks {
    pub(super) fn new(problem: &Problem<'_>) -> Self {
        let count = problem.cards().len();
        let cards = if problem.links().vary() && count <= LINKED_CARDS { 0..count } else { 0..0 };
        let open = |step: usize| {
            let may_take = |card: &usize| problem.steps[step].chosen > 1 && problem.takes(*card, step);
            set_of(cards.clone().filter(may_take))
        };
        Self { open: (0..problem.steps.len()).map(open).collect(), best: HashMap::new() }
    }

    /// How much worse than the best a container's cards are linked at their worst link, whatever those will be that are still
    /// missing; nothing as long as all are.
    pub(super) fn worst_link(&mut self, problem: &Problem<'_>, step: usize, outcome: &Outcome) -> u64 {
        let set = &outcome.sets[step];
        if set.is_empty() {
            return 0;
        }
        let rank = self.best(problem, step, outcome).or_else(|| problem.links().bottleneck(set).map(Link::rank));
        rank.map_or(0, |rank| Link::BEST_RANK - rank)
    }

    /// The rank of the best worst link that a set can have with the cards that it misses; `None` where it misses none, or
    /// where that can't be told.
    fn best(&mut self, problem: &Problem<'_>, step: usize, outcome: &Outcome) -> Option<u64> {
        let set = &outcome.sets[step];
        let facts = &problem.steps[step];
        let missing = facts.request.cards.checked_sub(u32::try_from(set.len()).ok()?).filter(|missing| *missing > 0)?;
        if facts.drawn > 0 || self.open[step] == 0 {
            return None;
        }
        let mut others = self.open[step];
        if problem.numa_strict(step) {
            others &= set_of((0..problem.cards().len()).filter(|card| problem.on_one_node(&[set[0], *card])));
        }
        if problem.is_exclusive(step) {
            let beside = (0..problem.steps.len()).filter(|other| *other != step && problem.run_together(step, *other));
            others &= !set_of(beside.flat_map(|other| outcome.sets[other].iter().copied()));
        }
        let set = set_of(set.iter().copied());
        *self.best.entry((set, missing, others)).or_insert_with(|| problem.links().best_with(set, missing, others))
    }
}

// === impl FreeSets ===

impl FreeSets {
    pub(super) fn new(state: &NodeState) -> Self {
        let is_empty = |(card, held): (&Card, &Held)| card.is_healthy() && held.is_nothing();
        let empty = set_of(state.each().enumerate().filter(|(_, each)| is_empty(*each)).map(|(at, _)| at));
        Self { empty, worth: state.node.links.value(empty), left: HashMap::new() }
    }

    /// What is gone of it once these cards are in use.
    pub(super) fn lost(&mut self, links: &Links, touched: &[(usize, Share)]) -> u64 {
        let left = self.empty & !set_of(touched.iter().map(|(card, _)| *card));
        if left == self.empty {
            return 0;
        }
        self.worth - *self.left.entry(left).or_insert_with(|| links.value(left))
    }
}

/// Without cards beyond those that a set holds.
fn set_of(cards: impl Iterator<Item = usize>) -> CardSet {
    cards.filter(|card| *card < LINKED_CARDS).fold(0, |set, card| set | 1 << card)
}
