//! Answer of one node to a pod.

use divvy_api::{Card, CardId, Memory, MigProfile, Tier};
use divvy_placement::{Held, NodeScore, NodeState, Plan, Reason, score};
use serde::Serialize;

use crate::fit::Query;
use crate::fit::WhyNot;
use crate::nodes::Unschedulable;
use crate::nodes::{Holder, Node};

/// Whether one node could run a pod, and why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAnswer {
    /// Name of the node.
    pub name: String,
    /// Whether it could run the pod, by its GPUs.
    pub fits: Fits,
    /// 1 for the best of the nodes that could, and for all as good as that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// Score that `prioritize` would give of all these nodes: 10 for the best, 0 for those that don't fit.
    pub score: i64,
    /// Why it doesn't fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The container that finds no GPUs, where that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Why it takes no pods at all now, if it doesn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Why the scheduler filters it out, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barred: Option<Unschedulable>,
    /// UIDs of the pods of lower priority there, if the pod would fit without them; maybe not all would have to go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lower: Vec<String>,
    /// Isolation tier of its shares, at least.
    pub tier: Tier,
    /// Host memory in MiB for what isn't on the GPUs, where the node oversubscribes memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_memory_mi: Option<Part>,
    /// Revision of the ledger that this is by.
    pub ledger_revision: u64,
    /// GPUs as the pod finds them: what it holds itself counts as free.
    pub cards: Vec<CardAnswer>,
}

/// When a node could run a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fits {
    /// Now.
    Now,
    /// As soon as its Node is schedulable.
    Barred,
    /// Once pods of lower priority are evicted.
    ByEviction,
    /// Once other pods have ended, or the node and its GPUs are healthy.
    Later,
    /// Not asked, as others took too long.
    Unknown,
    /// Not even if all of its GPUs were healthy and free.
    Never,
}

/// One GPU of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardAnswer {
    /// UUID of the GPU.
    pub uuid: CardId,
    /// Product name, as in NVML.
    pub model: String,
    /// MIG profile, for an instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<MigProfile>,
    /// Memory in MiB.
    pub memory_mi: Part,
    /// Host memory in MiB that is booked in addition, where its memory is oversubscribed.
    #[serde(skip_serializing_if = "Memory::is_zero")]
    pub held_host_memory_mi: Memory,
    /// Compute in percent of a GPU.
    pub cores: Part,
    /// Number of other pods that hold or have reserved shares.
    pub pods: u32,
    /// Whether one of them holds it alone.
    pub exclusive: bool,
    /// Whether the pod would be given it.
    pub chosen: bool,
    /// Why it wouldn't; absent too for a GPU that alone would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is free of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Amount that the pod could get.
    pub free: u64,
    /// Amount that may be reserved in all.
    pub capacity: u64,
}

/// Host memory of a node for what isn't on its cards; `None`: it oversubscribes no memory.
pub(super) fn host_memory(state: &NodeState) -> Option<Part> {
    let capacity = state.node.oversubscription?.host_memory.saturating_sub(state.host_elsewhere);
    Some(Part { free: state.host_memory_left().as_mib(), capacity: capacity.as_mib() })
}

// === impl NodeAnswer ===

impl NodeAnswer {
    /// Plans the pod on the node, unless it is too late; with the plan's score if it fits.
    pub(super) fn planned(
        node: &Node,
        query: &Query<'_>,
        barred: Option<Unschedulable>,
        is_late: bool,
    ) -> (Self, Option<NodeScore>) {
        let demand = query.demand;
        let state = node.state_without(|holder| holder.uid == demand.uid);
        let late =
            || WhyNot { reason: "node(s) were not evaluated in time".into(), container: None, of_cards: Vec::new() };
        let plan = if is_late { Err(late()) } else { node.plan(&state, query) };
        let rating = plan
            .as_ref()
            .ok()
            .filter(|_| barred.is_none())
            .map(|plan| score(&state, &demand.request(), plan, &query.policies.nodes));
        let (fits, why_not) = match &plan {
            Ok(_) if barred.is_some() => (Fits::Barred, None),
            Ok(_) => (Fits::Now, None),
            Err(why_not) if is_late => (Fits::Unknown, Some(why_not.clone())),
            Err(why_not) if barred.is_none() && node.may_be_cleared_for(query) => {
                (Fits::ByEviction, Some(why_not.clone()))
            }
            // What is held now is no reason where even all cards wouldn't do.
            Err(why_not) => match node.why_never(query) {
                None => (Fits::Later, Some(why_not.clone())),
                never => (Fits::Never, never),
            },
        };
        let in_the_way = |holder: &&Holder| fits == Fits::ByEviction && holder.priority < demand.priority;
        let lower = node.holders.iter().filter(in_the_way);
        let (reason, container) = match why_not {
            None => (barred.map(|unschedulable| unschedulable.reason().to_owned()), None),
            Some(WhyNot { reason, container, .. }) => (Some(reason.to_string()), container),
        };
        let answer = Self {
            name: node.name.to_string(),
            fits,
            rank: None,
            score: 0,
            reason,
            container,
            closed: node.closed.as_deref().map(str::to_owned),
            barred,
            lower: lower.map(|holder| holder.uid.to_string()).collect(),
            tier: node.tier,
            host_memory_mi: host_memory(&state),
            ledger_revision: node.ledger_revision,
            cards: state.each().enumerate().map(|(at, (card, held))| CardAnswer::new(at, card, held, &plan)).collect(),
        };
        (answer, rating)
    }
}

// === impl CardAnswer ===

impl CardAnswer {
    fn new(at: usize, card: &Card, held: &Held, plan: &Result<Plan, WhyNot>) -> Self {
        let gives = card.is_healthy() && !held.exclusive;
        let part =
            |capacity: u64, held: u64| Part { free: if gives { capacity.saturating_sub(held) } else { 0 }, capacity };
        let reason = plan.as_ref().err().and_then(|why_not| why_not.of_cards.get(at)?.as_ref());
        let unhealthy_reason = (!card.is_healthy()).then(|| card.health.to_string());
        Self {
            uuid: card.id.clone(),
            model: card.model.to_string(),
            profile: card.requested_profile().cloned(),
            memory_mi: part(card.memory_capacity().as_mib(), held.memory.as_mib()),
            held_host_memory_mi: held.host,
            cores: part(card.cores_capacity().units().into(), held.cores.units().into()),
            pods: held.pods,
            exclusive: held.exclusive,
            chosen: plan
                .as_ref()
                .is_ok_and(|plan| plan.containers.iter().any(|container| container.chosen.contains(&at))),
            reason: match reason {
                Some(Reason::Unhealthy) | None => unhealthy_reason,
                Some(reason) => Some(reason.to_string()),
            },
        }
    }
}
