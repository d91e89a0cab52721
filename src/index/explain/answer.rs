//! What one node says to a pod.

use std::sync::Arc;

use divvy_api::{CardId, MigProfile, Tier};
use divvy_placement::{Card, NodeScore, Plan, Reason, score};
use serde::Serialize;

use crate::fit::Query;
use crate::fit::WhyNot;
use crate::snapshot::Unschedulable;
use crate::snapshot::{Holder, Node};

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAnswer {
    /// Its name.
    pub name: String,
    /// Whether it could run the pod, by its cards.
    pub fits: Fits,
    /// 1 for the best of the nodes that could, and for all as good as that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// What the scheduler would be told if it asked about all of these nodes: 10 for the best, 0 for those that couldn't.
    pub score: i64,
    /// Why it couldn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The container that finds no cards, where that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// It takes no pods at all now, for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// The scheduler passes it over, for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barred: Option<Unschedulable>,
    /// UIDs of the pods of lower priority there, if it could were they gone; maybe not all of them would have to go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lower: Vec<String>,
    /// How it enforces shares, at least.
    pub tier: Tier,
    /// Revision of its ledger that this is said by.
    pub ledger_revision: u64,
    /// As the pod finds them: what it holds itself counts as free.
    pub cards: Vec<CardAnswer>,
}

/// When a node could run a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fits {
    /// Now.
    Now,
    /// As soon as the scheduler doesn't pass it over any more.
    Barred,
    /// Once pods of lower priority are evicted.
    ByEviction,
    /// Once others have ended, or what ails the node or its cards is over.
    Later,
    /// It wasn't asked, as others took too long.
    Unknown,
    /// Not even if all of its cards were sound and nobody held any.
    Never,
}

/// One card of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardAnswer {
    /// Its UUID.
    pub uuid: CardId,
    /// Product name as NVML gives it.
    pub model: String,
    /// MIG profile, for an instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<MigProfile>,
    /// In MiB.
    pub memory_mi: Part,
    /// In percent of a card.
    pub cores: Part,
    /// Other pods that hold shares, or were reserved some.
    pub pods: u32,
    /// One of them holds it alone.
    pub exclusive: bool,
    /// The pod would be given it.
    pub chosen: bool,
    /// Why it wouldn't; absent too for a card that alone would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is left of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// What the pod could get.
    pub free: u64,
    /// What may be reserved.
    pub capacity: u64,
}

// === impl NodeAnswer ===

impl NodeAnswer {
    /// What the node says, unless it is too late to ask it, and what its plan is worth if it could run the pod.
    pub(super) fn of(
        node: &Node,
        query: &Query<'_>,
        barred: Option<Unschedulable>,
        is_late: bool,
    ) -> (Self, Option<NodeScore>) {
        let demand = query.demand;
        let cards = node.cards_without(|holder| holder.uid == demand.uid);
        let late = || WhyNot { reason: "not asked in time".into(), container: None, of_cards: Vec::new() };
        let plan = if is_late { Err(late()) } else { node.plan(&cards, query) };
        let rating = plan
            .as_ref()
            .ok()
            .filter(|_| barred.is_none())
            .map(|plan| score(&cards, &node.links, &demand.request(), plan, &query.policies.nodes));
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
            ledger_revision: node.ledger_revision,
            cards: (0..cards.len()).map(|at| CardAnswer::of(node, &cards, at, &plan)).collect(),
        };
        (answer, rating)
    }
}

// === impl CardAnswer ===

impl CardAnswer {
    fn of(node: &Node, cards: &[Card], at: usize, plan: &Result<Plan, WhyNot>) -> Self {
        let Card { id, model, profile, memory_capacity, cores_capacity, healthy, held, .. } = &cards[at];
        let gives = *healthy && !held.exclusive;
        let part =
            |capacity: u64, held: u64| Part { free: if gives { capacity.saturating_sub(held) } else { 0 }, capacity };
        let reason = plan.as_ref().err().and_then(|why_not| why_not.of_cards.get(at)?.as_ref());
        let unhealthy_reason = node.unhealthy.get(&at).map(Arc::as_ref);
        Self {
            uuid: id.clone(),
            model: model.to_string(),
            profile: profile.clone(),
            memory_mi: part(memory_capacity.as_mib(), held.memory.as_mib()),
            cores: part(cores_capacity.units().into(), held.cores.units().into()),
            pods: held.pods,
            exclusive: held.exclusive,
            chosen: plan
                .as_ref()
                .is_ok_and(|plan| plan.containers.iter().any(|container| container.chosen.contains(&at))),
            reason: match reason {
                Some(Reason::Unhealthy) | None => unhealthy_reason.map(str::to_owned),
                Some(reason) => Some(reason.to_string()),
            },
        }
    }
}
