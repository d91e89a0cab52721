//! From a pod and a node's cards to the best plan.

use crate::node_state::NodeState;
use crate::pod::{ContainerPlan, NoPlan, Plan, PodRequest};
use crate::policy::Policy;
use crate::problem::Problem;
use crate::search::Search;

/// The best plan that the policy knows for the pod, within a bounded number of steps; a valid plan is found if there is
/// one and the steps suffice.
pub fn plan(state: &NodeState, pod: &PodRequest<'_>, policy: &Policy) -> Result<Plan, NoPlan> {
    let problem = Problem::new(state, pod);
    let policy = if problem.sharing.is_whole() { &Policy::OF_WHOLE } else { policy };
    let chosen_by = Search::new(&problem, policy)?.run()?;
    Ok(written_out(&problem, &chosen_by))
}

/// The plan in which these steps choose each card.
fn written_out(problem: &Problem<'_>, chosen_by: &[Vec<usize>]) -> Plan {
    let allocated =
        problem.pod.allocated.iter().map(|cards| ContainerPlan { chosen: cards.clone(), ..ContainerPlan::default() });
    let mut containers: Vec<ContainerPlan> = allocated.collect();
    containers.resize_with(problem.pod.containers.len(), ContainerPlan::default);
    for (index, step) in problem.steps.iter().enumerate() {
        let chosen = (0..problem.cards().len()).filter(|card| chosen_by[*card].contains(&index)).collect();
        let reused = problem.pool(index, chosen_by);
        containers[step.container] = ContainerPlan { chosen, reused, drawn: step.drawn };
    }
    Plan { containers }
}
