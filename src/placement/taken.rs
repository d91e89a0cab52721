//! Amounts that a plan takes of each card.

use std::sync::Arc;

use divvy_api::gpunode::{Oversubscription, Scales};
use divvy_api::{Card, Memory, NodeCards};

use crate::node_state::{NodeState, Taken};
use crate::pod::{Plan, PodRequest};
use crate::problem::Problem;

/// What a pod with this plan takes of each card that it may touch; `None` if its containers get in each other's way, or are to
/// have cards whole that are too small for them.
///
/// Whether other pods leave so much isn't checked: a share counts in full even where the card is overfilled.
pub fn taken(node: &NodeCards, pod: &PodRequest<'_>, plan: &Plan) -> Option<Vec<Taken>> {
    let boundless = NodeState::empty(Arc::new(without_bounds(node)));
    let problem = Problem::new(&boundless, pod);
    let chosen_by = problem.chosen_by(plan);
    let mut taken = Vec::new();
    for (card, by) in chosen_by.iter().enumerate() {
        let load = problem.load(card, by).ok()?;
        if !load.is_fresh() {
            taken.push(Taken { card, share: load.peak, slots: load.slots });
        }
    }
    Some(taken)
}

fn without_bounds(node: &NodeCards) -> NodeCards {
    let scales = Scales { memory: u32::MAX, cores: u32::MAX };
    let boundless = |card: &Card| Card { scales, slots: u32::MAX, ..card.clone() };
    let endless = |of: Oversubscription| Oversubscription { host_memory: Memory::mib(u64::MAX), ..of };
    NodeCards {
        cards: node.cards.iter().map(boundless).collect(),
        links: Arc::clone(&node.links),
        undivided: node.undivided,
        oversubscription: node.oversubscription.map(endless),
    }
}
