//! Search for the best plans of pods that ask for several cards: nodes that have changed are bounded first, and those
//! with the best bounds are searched, as far as the time allows.

use std::cmp::Reverse;
use std::time::Instant;

use super::score_cache::{Rating, Scores};
use crate::fit::Query;
use crate::nodes::{NodeRef, View};

/// How much of the nodes is found out in one go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// About how many nodes are bounded.
    pub(crate) bounds: usize,
    /// From then on no more than a few nodes are bounded, and searches end once there is a plan and a few nodes have been tried
    /// for a better one. `None`: each node gets its plan, or has none.
    pub(crate) deadline: Option<Instant>,
}

/// Nodes whose scores are bounded however late it is: a small cluster always has an answer.
const AT_LEAST: usize = 16;
/// Most searches of one call once one of them has found a plan.
const MOST_SEARCHES: usize = 8;

// === impl Budget ===

impl Budget {
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

// === impl Scores ===

impl Scores<Rating> {
    /// Bounds and searches nodes that have changed since they were rated. Returns whether all of them are bounded now.
    pub(crate) fn refine(&mut self, query: &Query<'_>, view: &View, asked: &[NodeRef], budget: Budget) -> bool {
        let are_all = self.bound(query, view, asked, budget);
        self.search(query, view, asked, budget);
        are_all
    }

    fn bound(&mut self, query: &Query<'_>, view: &View, asked: &[NodeRef], budget: Budget) -> bool {
        let stale: Vec<NodeRef> = asked.iter().filter(|node| self.get(**node).is_none()).copied().collect();
        // Spread over the cluster, as parts of it may be full.
        let step = stale.len().div_ceil(budget.bounds).max(1);
        for (number, node) in stale.iter().step_by(step).enumerate() {
            if number >= AT_LEAST && budget.is_over() {
                return false;
            }
            self.set(*node, query.at_best(view, node.place).map_or(Rating::Not, Rating::AtBest));
        }
        step == 1
    }

    /// Searches nodes whose bound is as good as the best known score, the best bounds first.
    fn search(&mut self, query: &Query<'_>, view: &View, asked: &[NodeRef], budget: Budget) {
        let mut best = None;
        let mut bounds = Vec::new();
        for asked in asked {
            match self.rating(asked) {
                Rating::Is(score) => best = best.max(Some(score)),
                Rating::AtBest(bound) => bounds.push((Reverse(bound), asked.place, *asked)),
                Rating::Not | Rating::Unknown => {}
            }
        }
        bounds.sort_unstable_by_key(|(bound, place, _)| (*bound, *place));
        for (searches, (Reverse(bound), place, node)) in bounds.into_iter().enumerate() {
            let is_hopeless = best.is_some_and(|best| bound < best && !bound.is_as_good_as(&best));
            let is_enough = is_hopeless || (searches >= MOST_SEARCHES && best.is_some());
            if budget.deadline.is_some() && (is_enough || searches > 0 && budget.is_over()) {
                break;
            }
            let score = view.node(place).and_then(|node| query.rate(node));
            best = best.max(score);
            self.set(node, score.into());
        }
    }
}
