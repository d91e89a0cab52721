//! From a pod and a node's cards to the best plan.

use crate::card::Card;
use crate::case::Case;
use crate::links::Links;
use crate::plan::{ContainerPlan, NoPlan, Plan, PodRequest};
use crate::policy::Policy;
use crate::search::Search;

/// The best plan that the policy knows for the pod, within a bounded number of steps; a valid plan is found if there is
/// one and the steps suffice.
pub fn plan(cards: &[Card], links: &Links, pod: &PodRequest<'_>, policy: &Policy) -> Result<Plan, NoPlan> {
    let case = Case::new(cards, pod);
    let policy = if case.whole { &Policy::OF_WHOLE } else { policy };
    let chosen_by = Search::new(&case, links, policy)?.run()?;
    Ok(written_out(&case, &chosen_by))
}

/// The plan in which these steps choose each card.
fn written_out(case: &Case<'_>, chosen_by: &[Vec<usize>]) -> Plan {
    let settled =
        case.pod.settled.iter().map(|cards| ContainerPlan { chosen: cards.clone(), ..ContainerPlan::default() });
    let mut containers: Vec<ContainerPlan> = settled.collect();
    containers.resize_with(case.pod.containers.len(), ContainerPlan::default);
    for (index, step) in case.steps.iter().enumerate() {
        let chosen = (0..case.cards.len()).filter(|card| chosen_by[*card].contains(&index)).collect();
        let reused = case.pool(index, chosen_by);
        containers[step.container] = ContainerPlan { chosen, reused, drawn: step.drawn };
    }
    Plan { containers }
}
