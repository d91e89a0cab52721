//! One pod, tried on one node after another.

use divvy_api::annotation::PolicyName;
use divvy_placement::{
    AnyPod, CardRow, CardShares, CardTable, ExpectedRequests, Lacking, NodeScore, NodeState, OneCard, OneRequest,
    Taken, plan, score, taken,
};

use crate::demand::{Demand, Policies, SchedulingConfig};
use crate::nodes::Node;
use crate::nodes::View;

/// A demand, with what is worked out once for all nodes.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    /// Request of the pod.
    pub demand: &'a Demand,
    /// Order of plans and nodes.
    pub policies: Policies,
    kind: Kind<'a>,
}

#[derive(Clone, Debug)]
enum Kind<'a> {
    /// One card: a few numbers of a node decide.
    Single(OneCard<'a>),
    /// More than one: the best plan takes a search. With one request, the tightest cards will do.
    Several(AnyPod<'a>, Option<OneRequest<'a>>),
}

// === impl Query ===

impl<'a> Query<'a> {
    /// Prepares a demand for many nodes.
    pub fn new(demand: &'a Demand, config: &SchedulingConfig) -> Self {
        let pod = demand.request();
        let policies = demand.policies(config);
        let Policies { cards, nodes } = policies;
        let several = || Kind::Several(AnyPod::new(pod, nodes), OneRequest::from_pod(&pod));
        let kind = OneCard::from_pod(&pod, cards, nodes).map_or_else(several, Kind::Single);
        Self { demand, policies, kind }
    }

    /// The pod, if the tightest cards will do for its one request.
    fn one_request(&self) -> Option<&OneRequest<'a>> {
        match &self.kind {
            Kind::Single(single) => Some(single.request()),
            Kind::Several(_, one_request) => one_request.as_ref(),
        }
    }

    /// Whether rating a node takes a search.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self.kind, Kind::Several(..))
    }

    /// Whether nodes are ranked by the expected requests.
    pub(crate) fn looks_ahead(&self, expected: &ExpectedRequests) -> bool {
        self.policies.nodes.name == PolicyName::LeastFragmentation && !expected.requests.is_empty()
    }

    /// Whether [`takes`](Self::takes) needs a search.
    pub(crate) fn takes_a_search(&self) -> bool {
        self.one_request().is_none() && self.demand.claiming() > 0
    }

    /// The share of each card that the pod would take of a node with these numbers; `None` if it doesn't fit. Its plan may
    /// name other cards that have as little left.
    pub(crate) fn takes(&self, node: &Node, card_row: CardRow<'_>) -> Option<CardShares> {
        if self.demand.claiming() == 0 {
            return Some(CardShares::new());
        }
        if node.refusal(self.demand).is_some() {
            return None;
        }
        let Some(one_request) = self.one_request() else {
            let plan = plan(&node.state, &self.demand.request(), &self.policies.cards).ok()?;
            let taken = taken(&node.state.node, &self.demand.request(), &plan)?;
            return Some(taken.into_iter().map(|Taken { card, share, .. }| (card, share)).collect());
        };
        card_row.tightest(|| &node.state.node, one_request)
    }

    /// Score of the best plan on the node; `None` if there is none.
    pub(crate) fn rate(&self, node: &Node) -> Option<NodeScore> {
        self.rate_on(node, &node.state)
    }

    /// Score of the best plan if the pod itself held nothing there.
    pub(crate) fn rate_without_itself(&self, node: &Node) -> Option<NodeScore> {
        self.rate_on(node, &node.state_without(|holder| holder.uid == self.demand.uid))
    }

    /// Whether there is a plan in this state of the node.
    pub fn fits(&self, node: &Node, state: &NodeState) -> bool {
        self.rate_on(node, state).is_some()
    }

    /// Score of the best plan without a search, if the query isn't slow; maybe `None` if no plan is as good as `least`.
    pub(crate) fn rate_quickly(&self, view: &View, place: u32, least: Option<&NodeScore>) -> Option<NodeScore> {
        let Kind::Single(single) = &self.kind else { return None };
        let (_, score) = view.card_row(place)?.best(|| view.node_cards(place), single, least)?;
        self.is_served(view, place).then_some(score)
    }

    /// What the node's cards lack, if that takes no plan.
    pub(crate) fn lacking(&self, view: &View, place: u32) -> Option<Lacking> {
        let Kind::Single(single) = &self.kind else { return None };
        let card_row = view.card_row(place).filter(|_| self.is_served(view, place))?;
        card_row.lacking(single)
    }

    /// Upper bound of the score, found without a search; `None` if there is no plan.
    pub(crate) fn at_best(&self, view: &View, place: u32) -> Option<NodeScore> {
        let Kind::Several(several, _) = &self.kind else { return self.rate_quickly(view, place, None) };
        let score = view.card_row(place)?.at_best(|| view.node_cards(place), several)?;
        self.is_served(view, place).then_some(score)
    }

    /// Whether a node that takes pods takes such pods. Few pods ask for more than cards, so the node is rarely looked at.
    fn is_served(&self, view: &View, place: u32) -> bool {
        !self.demand.asks_of_nodes() || view.node(place).is_some_and(|node| node.never(self.demand).is_none())
    }

    fn rate_on(&self, node: &Node, state: &NodeState) -> Option<NodeScore> {
        if node.refusal(self.demand).is_some() {
            return None;
        }
        let Policies { cards: by, nodes } = &self.policies;
        match &self.kind {
            Kind::Single(single) => {
                let card_table = CardTable::new(state);
                card_table.at(0)?.best(|| &*state.node, single, None).map(|(_, score)| score)
            }
            Kind::Several(..) => {
                let request = self.demand.request();
                let plan = plan(state, &request, by).ok()?;
                Some(score(state, &request, &plan, nodes))
            }
        }
    }
}
