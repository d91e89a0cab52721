//! One pod, put to one node after another.

use divvy_placement::{Card, Ground, NodeScore, Single, plan, score};

use crate::demand::{Demand, Policies};
use crate::node::Node;

/// A demand, with what is worked out once for all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What is asked for.
    pub demand: &'a Demand,
    /// How answers compare.
    pub policies: &'a Policies,
    /// The demand, if a node's answer to it is quick.
    single: Option<Single<'a>>,
}

// === impl Question ===

impl<'a> Question<'a> {
    /// The question that a demand is.
    pub fn new(demand: &'a Demand, policies: &'a Policies) -> Self {
        let single = Single::of(&demand.request(), &policies.cards).filter(|_| policies.agree());
        Self { demand, policies, single }
    }

    /// Whether a node's answer takes a search.
    pub(crate) fn is_slow(&self) -> bool {
        self.single.is_none()
    }

    /// What the best plan on the node is worth; `None` if there is none.
    pub(crate) fn rate(&self, node: &Node) -> Option<NodeScore> {
        self.rate_on(node, &node.cards, &node.ground)
    }

    /// The same, as if the pod itself held nothing there.
    pub(crate) fn rate_without_itself(&self, node: &Node) -> Option<NodeScore> {
        let cards = node.cards_without(|holder| holder.uid == self.demand.uid);
        self.rate_on(node, &cards, &Ground::new(&cards, &node.links, &self.policies.cards.mix))
    }

    /// Whether there is a plan on these cards of the node.
    pub fn fits(&self, node: &Node, cards: &[Card]) -> bool {
        self.rate_on(node, cards, &Ground::new(cards, &node.links, &self.policies.cards.mix)).is_some()
    }

    /// What no plan on the node exceeds, as far as can be seen without a search; `None` if there is no plan.
    pub(crate) fn at_best(&self, node: &Node) -> Option<NodeScore> {
        let by = &self.policies.nodes;
        node.refusal(self.demand).is_none().then(|| node.ground.at_best(&node.cards, &self.demand.request(), by))?
    }

    fn rate_on(&self, node: &Node, cards: &[Card], ground: &Ground) -> Option<NodeScore> {
        if node.refusal(self.demand).is_some() {
            return None;
        }
        if let Some(single) = &self.single {
            return ground.best(cards, single).map(|(_, score)| score);
        }
        let request = self.demand.request();
        let Policies { cards: by, nodes } = self.policies;
        ground.at_best(cards, &request, nodes)?;
        let plan = plan(cards, &node.links, &request, by).ok()?;
        Some(score(cards, &node.links, &request, &plan, nodes))
    }
}
