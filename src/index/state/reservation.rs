//! A reservation: cards that a bound pod was told, until its node shows them in its ledger.

use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::CardId;
use divvy_api::annotation::{Planned, PlannedCards};
use divvy_placement::{Card, ContainerPlan, Plan, Taken, taken};

use crate::demand::Demand;

/// What was reserved to one pod.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// Who asked.
    pub(crate) demand: Arc<Demand>,
    /// The cards, as the pod carries them.
    pub(crate) planned: Planned,
    pub(crate) source: Source,
    /// The API server has said that the pod is bound.
    pub(crate) bound: bool,
    /// When it is given up if nothing is heard.
    pub(crate) deadline: Instant,
}

/// Where a reservation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Made here: a prediction of ours.
    Made,
    /// Read from a pod that another made it for.
    Read,
    /// Room that is being made by evictions, kept for the pod; the pod hasn't been told.
    Nomination,
}

/// How long reservations live of which nothing is heard.
#[derive(Clone, Copy, Debug)]
pub struct ReservationTimeouts {
    /// From a plan to the API server's word that the pod is bound.
    pub bound_within: Duration,
    /// From there to the node's report.
    pub reported_within: Duration,
}

// === impl ReservationTimeouts ===

impl Default for ReservationTimeouts {
    fn default() -> Self {
        Self { bound_within: Duration::from_secs(30), reported_within: Duration::from_secs(600) }
    }
}

// === impl Reservation ===

impl Reservation {
    /// Of a plan that was just made on these cards.
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
        let planned = Planned { node: node.to_owned(), containers: of_container.collect() };
        Self { demand, planned, source, bound: false, deadline }
    }

    /// Whether the pod carries it, or is about to.
    pub(crate) fn is_announced(&self) -> bool {
        self.source != Source::Nomination
    }

    /// Whether the API server has said that the pod is bound.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound
    }

    /// What it takes of each card, however the kubelet draws; `None` if the node can't follow it, and so will plan anew.
    pub(crate) fn takes(&self, cards: &[Card]) -> Option<Vec<Taken>> {
        let position = |id: &CardId| cards.iter().position(|card| card.id == *id);
        let plan_of = |name: &String| {
            let chosen = self.planned.containers.get(name).map_or(&[][..], |cards| &cards.chosen);
            let chosen = chosen.iter().map(position).collect::<Option<Vec<usize>>>()?;
            Some(ContainerPlan { chosen, ..ContainerPlan::default() })
        };
        let containers = self.demand.containers.iter().map(|container| plan_of(&container.name));
        taken(cards, &self.demand.request(), &Plan { containers: containers.collect::<Option<Vec<_>>>()? })
    }

    /// Whether the pod was told that it may get this card.
    pub(crate) fn names(&self, card: &CardId) -> bool {
        self.planned.containers.values().any(|cards| cards.chosen.contains(card) || cards.reused.contains(card))
    }
}
