//! Whether a plan that somebody else wrote, or that was made a while ago, is still good.

use std::collections::BTreeSet;

use divvy_api::CardId;

use crate::node_state::NodeState;
use crate::pod::{Plan, PodRequest};
use crate::problem::Problem;
use crate::reason::Reason;

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// Not a plan for this pod.
    #[error("planned for {planned} containers, the pod has {containers}")]
    Containers {
        /// Containers in the plan.
        planned: usize,
        /// Containers in the request.
        containers: usize,
    },
    /// More or fewer cards than the kubelet will ask for.
    #[error("container \"{container}\": {planned} GPUs planned, {wanted} to be chosen")]
    Count {
        /// The container's name.
        container: String,
        /// Cards in the plan.
        planned: usize,
        /// Cards of its request that don't come from earlier init containers.
        wanted: usize,
    },
    /// No such card.
    #[error("container \"{container}\": GPU {position} planned, the node has {cards}")]
    Position {
        /// The container's name.
        container: String,
        /// Position in the plan.
        position: usize,
        /// Number of cards.
        cards: usize,
    },
    /// A card twice for one container.
    #[error("container \"{container}\": {card} planned twice")]
    Twice {
        /// The container's name.
        container: String,
        /// The card.
        card: CardId,
    },
    /// The cards of a container may turn out to be on several NUMA nodes.
    #[error("container \"{container}\": not on one NUMA node")]
    Numa {
        /// The container's name.
        container: String,
    },
    /// The containers' cards are several, and the pod wants one.
    #[error("on {0} GPUs, and the pod's containers are to be on the same one")]
    Apart(usize),
    /// What the node has beside its cards doesn't suffice.
    #[error("{reason}")]
    Node {
        /// What breaks.
        reason: Reason,
    },
    /// A card that can't take what is planned for it.
    #[error("{card}: {reason}")]
    Card {
        /// The card.
        card: CardId,
        /// What breaks.
        reason: Reason,
    },
}

/// Whether a plan is valid for the pod on these cards as they are now.
///
/// Only the chosen cards are read: what the kubelet draws follows from the request. Containers that hold cards already are
/// taken from the request, whatever the plan says of them.
pub fn verify(state: &NodeState, pod: &PodRequest<'_>, plan: &Plan) -> Result<(), Misfit> {
    let problem = Problem::new(state, pod);
    let cards = problem.cards();
    let chosen_by = choices(&problem, plan)?;
    for (card, by) in chosen_by.iter().enumerate() {
        let barred = problem.barred(card).filter(|_| !by.is_empty()).cloned();
        let other_kind = || by.iter().any(|step| !problem.is_of_kind(card, *step)).then_some(Reason::Kind);
        let broken = barred.or_else(other_kind).or_else(|| problem.fit(card, by).err());
        if let Some(reason) = broken {
            return Err(Misfit::Card { card: cards[card].id.clone(), reason });
        }
    }
    let chosen = (0..cards.len()).filter(|card| !chosen_by[*card].is_empty());
    let held = problem.allocated_shares().into_iter().map(|(card, _)| card);
    let of_pod: BTreeSet<usize> = chosen.clone().chain(held).collect();
    if chosen.count() > 0 && of_pod.iter().any(|card| problem.is_apart(*card, of_pod.iter().copied())) {
        return Err(Misfit::Apart(of_pod.len()));
    }
    let shares = chosen_by.iter().enumerate().filter_map(|(card, by)| problem.fit(card, by).ok());
    if let Some(reason) = problem.lacks_host_memory(shares) {
        return Err(Misfit::Node { reason });
    }
    let strict = (0..problem.steps.len()).filter(|step| problem.numa_strict(*step));
    for step in strict {
        let container = problem.steps[step].container;
        let possible = [problem.pool(step, &chosen_by), plan.containers[container].chosen.clone()].concat();
        if !problem.on_one_node(&possible) {
            return Err(Misfit::Numa { container: pod.containers[container].name.clone() });
        }
    }
    Ok(())
}

/// The steps that choose each card.
fn choices(problem: &Problem<'_>, plan: &Plan) -> Result<Vec<Vec<usize>>, Misfit> {
    let cards = problem.cards();
    let containers = problem.pod.containers;
    if plan.containers.len() != containers.len() {
        return Err(Misfit::Containers { planned: plan.containers.len(), containers: containers.len() });
    }
    let mut chosen_by = vec![Vec::new(); cards.len()];
    let mut steps = problem.steps.iter().enumerate().peekable();
    for (at, planned) in plan.containers.iter().enumerate().skip(problem.pod.allocated.len()) {
        let container = || containers[at].name.clone();
        let step = steps.next_if(|(_, step)| step.container == at);
        let wanted = step.map_or(0, |(_, step)| step.chosen);
        if planned.chosen.len() != wanted {
            return Err(Misfit::Count { container: container(), planned: planned.chosen.len(), wanted });
        }
        for position in planned.chosen.iter().copied() {
            let Some(by) = chosen_by.get_mut(position) else {
                return Err(Misfit::Position { container: container(), position, cards: cards.len() });
            };
            let index = step.map_or(0, |(index, _)| index);
            if by.last() == Some(&index) {
                return Err(Misfit::Twice { container: container(), card: cards[position].id.clone() });
            }
            by.push(index);
        }
    }
    Ok(chosen_by)
}
