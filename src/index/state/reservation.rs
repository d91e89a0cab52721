//! Reservations: cards of a pod from its plan until the node's ledger shows them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::annotation::{Planned, PlannedCards};
use divvy_api::{Card, CardId, NodeCards};
use divvy_placement::{ContainerPlan, Plan, Taken, taken};

use crate::demand::Demand;

/// Cards reserved for one pod.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// Demand of the pod.
    pub(crate) demand: Arc<Demand>,
    /// The cards, as in the pod's annotation.
    pub(crate) planned: Planned,
    pub(crate) source: Source,
    /// Whether the API server has confirmed the binding.
    pub(crate) bound: bool,
    /// Whether the watch has shown the pod with it: its node nominated, or the pod bound.
    pub(crate) is_shown: bool,
    /// When the reservation is dropped.
    pub(crate) deadline: Instant,
}

/// Where a reservation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Planned by this replica for a scheduler that binds through it.
    Made,
    /// Planned by this replica for a pod that a scheduler is to bind by itself.
    Planned,
    /// Planned so by another replica, and read from the pod.
    Nominated,
    /// Read from a bound pod's annotation, or found on the node where a scheduler has bound it instead of the planned one.
    Read,
    /// Made for a nominated pod, and not in its annotation.
    Nomination,
}

/// Longest time from the plan to the binding.
pub(crate) const BOUND_WITHIN: Duration = Duration::from_secs(30);
/// Longest time from the binding to the node's report.
pub(crate) const REPORTED_WITHIN: Duration = Duration::from_secs(600);

// === impl Source ===

impl Source {
    /// Whether a scheduler is to bind the pod by itself.
    pub(crate) fn is_nominated(self) -> bool {
        matches!(self, Self::Planned | Self::Nominated)
    }

    /// Whether its outcome says how well this replica plans.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Made | Self::Planned)
    }
}

// === impl Reservation ===

impl Reservation {
    /// Creates a reservation of a plan on these cards.
    pub(crate) fn new(
        source: Source,
        demand: Arc<Demand>,
        node: &str,
        (cards, plan): (&[Card], &Plan),
        deadline: Instant,
    ) -> Self {
        let ids = |positions: &[usize]| positions.iter().map(|at| cards[*at].id.clone()).collect::<Vec<CardId>>();
        let claiming =
            demand.containers.iter().zip(&plan.containers).filter(|(container, _)| container.request.is_some());
        let of_container = claiming.map(|(container, cards)| {
            (container.name.clone(), PlannedCards { chosen: ids(&cards.chosen), reused: ids(&cards.reused) })
        });
        let planned = Planned { node: node.to_owned(), containers: of_container.collect(), ..Planned::default() };
        Self { demand, planned, source, bound: false, is_shown: false, deadline }
    }

    /// Demand of the pod as it is now: a scheduler has seen one that was shown with its node nominated.
    pub(crate) fn demand_now(&self) -> Arc<Demand> {
        if self.source.is_nominated() && self.is_shown {
            Arc::new(self.demand.without_our_gate())
        } else {
            Arc::clone(&self.demand)
        }
    }

    /// Whether the pod's annotation has it, or is about to.
    pub(crate) fn is_announced(&self) -> bool {
        matches!(self.source, Source::Made | Source::Planned | Source::Nominated | Source::Read)
    }

    /// Share of each card, whichever devices the kubelet picks; `None` if the node can't follow the plan and will plan anew.
    pub(crate) fn takes(&self, node: &NodeCards) -> Option<Vec<Taken>> {
        let position = |id: &CardId| node.position(id);
        let plan_of = |name: &String| {
            let chosen = self.planned.containers.get(name).map_or(&[][..], |cards| &cards.chosen);
            let chosen = chosen.iter().map(position).collect::<Option<Vec<usize>>>()?;
            Some(ContainerPlan { chosen, ..ContainerPlan::default() })
        };
        let containers = self.demand.containers.iter().map(|container| plan_of(&container.name));
        taken(node, &self.demand.request(), &Plan { containers: containers.collect::<Option<Vec<_>>>()? })
    }

    /// Whether the card is one of those reserved.
    pub(crate) fn names(&self, card: &CardId) -> bool {
        self.planned.containers.values().any(|cards| cards.chosen.contains(card) || cards.reused.contains(card))
    }
}
