//! Score of a node's plan, by which nodes are compared.

use std::cmp::Reverse;

use crate::node_state::NodeState;
use crate::pod::{Plan, PodRequest};
use crate::policy::{Cost, Judge, Outcome, Policy};
use crate::problem::Problem;

/// What a plan on a node is worth to a policy; greater is better. Comparable between nodes for one pod and one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeScore {
    pub(crate) plan: Reverse<Cost>,
    /// Whether the node is near others of the pod's group; decides between plans that are equal.
    pub(crate) is_near: bool,
    /// Decides between such nodes.
    pub(crate) node: Reverse<u64>,
}

// === impl NodeScore ===

impl NodeScore {
    /// A plan that is worth less the more it costs; of equals, the node with less left over is better.
    pub fn of_cost(cost: [u64; 2], leftover: u64) -> Self {
        Self { plan: Reverse([cost[0], cost[1], 0, 0, 0]), is_near: false, node: Reverse(leftover) }
    }

    /// Score of the same plan on a node that is near others of the pod's group.
    #[must_use]
    pub fn near(self) -> Self {
        Self { is_near: true, ..self }
    }

    /// Whether the plans are worth the same; the nodes may still differ.
    pub fn is_as_good_as(&self, other: &Self) -> bool {
        self.plan == other.plan
    }
}

/// Rates a plan by the criteria that the policy chooses cards by. Positions that don't exist are passed over.
pub fn score(state: &NodeState, pod: &PodRequest<'_>, plan: &Plan, policy: &Policy) -> NodeScore {
    let problem = Problem::new(state, pod);
    let chosen_by = problem.chosen_by(plan);
    let mut judge = Judge::new(&problem, policy);
    NodeScore {
        plan: Reverse(judge.cost(&Outcome::new(&problem, &chosen_by))),
        is_near: false,
        node: Reverse(judge.node_cost()),
    }
}
