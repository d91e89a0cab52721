//! Which node's plan is better.

use std::cmp::Reverse;

use crate::card::Card;
use crate::case::Case;
use crate::links::Links;
use crate::plan::{Plan, PodRequest};
use crate::policy::{Cost, Judge, Outcome, Policy};

/// What a plan on a node is worth to a policy; greater is better. Comparable between nodes for one pod and one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeScore {
    plan: Reverse<Cost>,
    /// Decides between plans that are equal.
    node: Reverse<u64>,
}

/// Rates a plan by the criteria that the policy chooses cards by. Positions that don't exist are passed over.
pub fn score(cards: &[Card], links: &Links, pod: &PodRequest<'_>, plan: &Plan, policy: &Policy) -> NodeScore {
    let case = Case::new(cards, pod);
    let mut chosen_by = vec![Vec::new(); cards.len()];
    for (index, step) in case.steps.iter().enumerate() {
        let chosen = plan.containers.get(step.container).map_or(&[][..], |container| &container.chosen);
        for card in chosen.iter().filter(|card| **card < cards.len()) {
            chosen_by[*card].push(index);
        }
    }
    let mut judge = Judge::new(&case, links, policy);
    NodeScore { plan: Reverse(judge.cost(&Outcome::of(&case, &chosen_by))), node: Reverse(judge.node_cost()) }
}
