//! Nodes and GPUs that would take the pod if they took pods at all.

use divvy_api::CardId;
use divvy_api::gpunode::CORDONED;
use divvy_placement::Card;

use super::{Change, MOST, Search, Suggestion};
use crate::demand::{Demand, Exceeded};
use crate::snapshot::{Node, Unschedulable};

impl Search<'_> {
    /// Nodes that are cordoned, not ready, or have no labels or taints for the pod; GPUs that are cordoned or sick.
    pub(super) fn by_node(&self) -> Vec<Suggestion> {
        let mut found: Vec<Suggestion> = Vec::new();
        for node in self.view.nodes() {
            if self.is_late() {
                break;
            }
            let suggestion = match (node.unschedulable, self.objects.kept_off.get(&*node.name)) {
                // Nothing to change, or two things.
                (Some(Unschedulable::Gone), _) | (Some(_), Some(_)) => None,
                (Some(Unschedulable::Cordoned), None) => self.if_it_fits(node, Change::Uncordon),
                (Some(Unschedulable::NotReady), None) => {
                    self.if_it_fits(node, Change::NodeReady { reason: "the Node is not ready".to_owned() })
                }
                (None, Some(reason)) => self.if_it_fits(node, Change::NodeSelection { reason: reason.clone() }),
                (None, None) => self.if_it_served(node).or_else(|| self.if_gpus_served(node)),
            };
            // As many nodes may be cordoned as there are.
            let alike =
                |known: &&Suggestion| suggestion.as_ref().is_some_and(|new| known.change.order() == new.change.order());
            if found.iter().filter(alike).count() < MOST {
                found.extend(suggestion);
            }
        }
        found
    }

    fn if_it_fits(&self, node: &Node, change: Change) -> Option<Suggestion> {
        let cards = node.cards_without(|holder| self.is_own(holder));
        self.query.fits(node, &cards).then(|| self.found(change, node, &cards, self.demand))
    }

    /// A node whose daemon takes no pods now.
    fn if_it_served(&self, node: &Node) -> Option<Suggestion> {
        let reason = node.closed.as_ref().filter(|_| !node.is_silent())?.to_string();
        let served = Node { closed: None, ..node.clone() };
        self.if_it_fits(&served, Change::NodeReady { reason })
    }

    /// A node with GPUs that take no pods now: only cordoned ones if these will do.
    fn if_gpus_served(&self, node: &Node) -> Option<Suggestion> {
        let unhealthy = |only_cordoned: bool| {
            let all = node.unhealthy.iter();
            let all = all.filter(move |(_, reason)| !only_cordoned || &***reason == CORDONED);
            all.map(|(at, _)| *at).collect::<Vec<usize>>()
        };
        for only_cordoned in [true, false] {
            let (candidates, cards) = (unhealthy(only_cordoned), node.cards_without(|holder| self.is_own(holder)));
            if candidates.is_empty() || !self.query.fits(node, &healed(&cards, &candidates)) {
                continue;
            }
            let mut needed = candidates.clone();
            for at in candidates {
                let fewer: Vec<usize> = needed.iter().copied().filter(|other| *other != at).collect();
                if self.query.fits(node, &healed(&cards, &fewer)) {
                    needed = fewer;
                }
            }
            let gpus: Vec<CardId> = needed.iter().map(|at| cards[*at].id.clone()).collect();
            let change = if only_cordoned { Change::UncordonGpus { gpus } } else { Change::HealthyGpus { gpus } };
            return Some(self.found(change, node, &healed(&cards, &needed), self.demand));
        }
        None
    }

    /// The quota that alone keeps the pod from a node.
    pub(super) fn by_quota(&self, asked: &Demand, exceeded: &[Exceeded]) -> Option<Suggestion> {
        exceeded.first()?;
        let node = self.first_fit(asked)?;
        let Exceeded { reason, .. } = node.exceeded(exceeded).next()?;
        let cards = node.cards_without(|holder| self.is_own(holder));
        Some(self.found(Change::Quota { reason: reason.to_string() }, node, &cards, asked))
    }
}

/// The cards, with some of them healthy.
fn healed(cards: &[Card], which: &[usize]) -> Vec<Card> {
    let of = |(at, card): (usize, &Card)| Card { healthy: card.healthy || which.contains(&at), ..card.clone() };
    cards.iter().enumerate().map(of).collect()
}
