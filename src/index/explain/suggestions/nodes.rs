//! Nodes and GPUs that would take the pod if they took pods at all.

use divvy_api::{CardId, Health};
use divvy_placement::NodeState;

use super::{Change, MOST, Search, Suggestion};
use crate::demand::{Demand, Exceeded};
use crate::fit::healed;
use crate::nodes::{Node, Unschedulable};

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
        let state = node.state_without(|holder| self.is_own(holder));
        self.query.fits(node, &state).then(|| self.found(change, node, &state, self.demand))
    }

    /// A node whose daemon takes no pods now.
    fn if_it_served(&self, node: &Node) -> Option<Suggestion> {
        let reason = node.closed.as_ref().filter(|_| !node.is_silent())?.to_string();
        let served = Node { closed: None, ..node.clone() };
        self.if_it_fits(&served, Change::NodeReady { reason })
    }

    /// A node with GPUs that take no pods now: only cordoned ones if these will do.
    fn if_gpus_served(&self, node: &Node) -> Option<Suggestion> {
        let state = node.state_without(|holder| self.is_own(holder));
        let healed = |which: &[usize]| healed(state.clone(), |at| which.contains(&at));
        for only_cordoned in [true, false] {
            let candidates = unhealthy(&state, only_cordoned);
            if candidates.is_empty() || !self.query.fits(node, &healed(&candidates)) {
                continue;
            }
            let mut needed = candidates.clone();
            for at in candidates {
                let fewer: Vec<usize> = needed.iter().copied().filter(|other| *other != at).collect();
                if self.query.fits(node, &healed(&fewer)) {
                    needed = fewer;
                }
            }
            let gpus: Vec<CardId> = needed.iter().map(|at| node.cards()[*at].id.clone()).collect();
            let change = if only_cordoned { Change::UncordonGpus { gpus } } else { Change::HealthyGpus { gpus } };
            return Some(self.found(change, node, &healed(&needed), self.demand));
        }
        None
    }

    /// The quota that alone keeps the pod from a node.
    pub(super) fn by_quota(&self, asked: &Demand, exceeded: &[Exceeded]) -> Option<Suggestion> {
        exceeded.first()?;
        let node = self.first_fit(asked)?;
        let Exceeded { reason, .. } = node.exceeded(exceeded).next()?;
        let state = node.state_without(|holder| self.is_own(holder));
        Some(self.found(Change::Quota { reason: reason.to_string() }, node, &state, asked))
    }
}

/// Cards that take no new shares, by position: all, or those that would if they weren't cordoned.
fn unhealthy(state: &NodeState, only_cordoned: bool) -> Vec<usize> {
    let is_wanted = |health: &Health| match health {
        Health::Healthy => false,
        Health::Cordoned { also: None } => true,
        Health::Cordoned { also: Some(_) } | Health::Unhealthy { .. } => !only_cordoned,
    };
    state.cards().iter().enumerate().filter(|(_, card)| is_wanted(&card.health)).map(|(at, _)| at).collect()
}
