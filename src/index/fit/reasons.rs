//! Why nodes don't take a pod, in the form of kube-scheduler's reasons, which are counted: a reason stays the same while what it
//! is about does.

use std::collections::HashMap;
use std::sync::Arc;

use divvy_api::{Card, ContainerRequest, Health, NodeCards};
use divvy_placement::{Lacking, NoPlan, NodeState, Plan, Reason, plan, summary};

use crate::demand::{Demand, Exceeded};
use crate::fit::Query;
use crate::nodes::View;
use crate::nodes::{Holder, Node};

/// Texts of the reasons in one answer.
#[derive(Debug, Default)]
pub(crate) struct ReasonSummaries(HashMap<Lacking, Arc<str>, foldhash::fast::RandomState>);

/// Why a pod doesn't fit on a node.
#[derive(Clone, Debug)]
pub(crate) struct WhyNot {
    /// Reason in a line.
    pub(crate) reason: Arc<str>,
    /// Container that finds no cards, if that is the reason.
    pub(crate) container: Option<String>,
    /// Reasons by position of the card; `None`: this card alone would do.
    pub(crate) of_cards: Vec<Option<Reason>>,
}

// === impl Node ===

impl Node {
    /// Why the pod doesn't fit here; `None` if it does.
    pub(crate) fn why_not(&self, query: &Query<'_>) -> Option<Arc<str>> {
        self.plan(&self.state, query).err().map(|why_not| why_not.reason)
    }

    /// Why the pod wouldn't fit even if all cards were healthy and free; `None` if it might. A node that hasn't reported its
    /// cards may have any.
    pub(crate) fn why_never(&self, query: &Query<'_>) -> Option<WhyNot> {
        if self.is_silent() {
            return None;
        }
        if let Some(reason) = self.never(query.demand) {
            return Some(WhyNot::by_node(reason));
        }
        self.place(&healed(self.state_without(|_| true), |_| true), query)
            .err()
            .filter(|why_not| why_not.container.is_some())
    }

    /// Which quota alone keeps the pod from this node; `asked` is what it requests apart from quotas.
    pub(crate) fn why_over_quota(&self, asked: &Query<'_>, exceeded: &[Exceeded]) -> Option<Arc<str>> {
        let by = self.exceeded(exceeded).next()?;
        asked.rate_without_itself(self).map(|_| Arc::clone(&by.reason))
    }

    /// The best plan in this state of the node.
    pub(crate) fn plan(&self, state: &NodeState, query: &Query<'_>) -> Result<Plan, WhyNot> {
        if let Some(message) = &self.closed {
            return Err(WhyNot::by_node(format!("node(s) were not ready for GPU pods: {message}").into()));
        }
        match self.never(query.demand) {
            Some(reason) => Err(WhyNot::by_node(reason)),
            None => self.place(state, query),
        }
    }

    /// The best plan, whether the node serves the pod or not.
    fn place(&self, state: &NodeState, query: &Query<'_>) -> Result<Plan, WhyNot> {
        if let Some(too_few) =
            query.demand.containers.iter().find_map(|container| self.too_few_for(container, query.demand))
        {
            return Err(too_few);
        }
        plan(state, &query.demand.request(), &query.policies.cards).map_err(|none| match none {
            NoPlan::Nothing { container, reasons, .. } => {
                WhyNot { reason: summary(&reasons).into(), container: Some(container), of_cards: reasons }
            }
            NoPlan::GaveUp { .. } => WhyNot::by_node("no GPU placement found in time".into()),
        })
    }

    /// Reason if the node has fewer cards of the requested kind than the container asks for, free or not.
    fn too_few_for(&self, container: &ContainerRequest, demand: &Demand) -> Option<WhyNot> {
        let ContainerRequest { name, profile, request, .. } = container;
        let wanted = request.as_ref()?.cards as usize;
        let by_hardware = demand.preferences.wants_instances();
        let is_such =
            |card: &&Card| card.requested_profile() == profile.as_ref() && (card.id.is_instance() || !by_hardware);
        let has = self.cards().iter().filter(is_such).count();
        let reason = match profile {
            _ if has == 0 || has >= wanted => return None,
            None if by_hardware => format!("Insufficient MIG instances ({wanted} requested, {has} on the node)"),
            None => format!("Insufficient GPUs ({wanted} requested, {has} on the node)"),
            Some(profile) => format!("Insufficient instances of {profile} ({wanted} requested, {has} on the node)"),
        };
        Some(WhyNot { reason: reason.into(), container: Some(name.clone()), of_cards: Vec::new() })
    }

    /// Whether the pod would fit here if the pods of lower priority were gone.
    pub(crate) fn may_be_cleared_for(&self, query: &Query<'_>) -> bool {
        let lower = |holder: &Holder| holder.priority < query.demand.priority;
        self.refusal(query.demand).is_none()
            && self.holders.iter().any(lower)
            && query.fits(self, &self.state_without(lower))
    }
}

/// A state with some of its cards healthy, by position.
pub(crate) fn healed(state: NodeState, is_healed: impl Fn(usize) -> bool) -> NodeState {
    let mut node = NodeCards::clone(&state.node);
    for (_, card) in node.cards.iter_mut().enumerate().filter(|(at, _)| is_healed(*at)) {
        card.health = Health::Healthy;
    }
    NodeState { node: Arc::new(node), ..state }
}

// === impl WhyNot ===

impl WhyNot {
    /// Reason that isn't about single cards.
    fn by_node(reason: Arc<str>) -> Self {
        Self { reason, container: None, of_cards: Vec::new() }
    }
}

// === impl ReasonSummaries ===

impl ReasonSummaries {
    /// Why the pod doesn't fit on the node at this place; `None` if it does.
    pub(crate) fn why_not(&mut self, query: &Query<'_>, view: &View, (place, node): (u32, &Node)) -> Option<Arc<str>> {
        let lacking = if let Some(lacking) = query.lacking(view, place) {
            lacking
        } else {
            let why_not = node.plan(&node.state, query).err()?;
            if why_not.of_cards.is_empty() {
                return Some(why_not.reason);
            }
            Lacking::from_reasons(&why_not.of_cards)
        };
        Some(Arc::clone(self.0.entry(lacking).or_insert_with(|| lacking.to_string().into())))
    }
}
