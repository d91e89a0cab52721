//! Reservations for preemptors: GPUs that evictions free are kept from the nomination until the pod is bound.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use divvy_placement::{Card, plan};

use super::{ClusterState, Pod, State, Touched};
use crate::demand::Demand;
use crate::snapshot::Holder;
use crate::state::{REPORTED_WITHIN, Reservation, Source};

// === impl ClusterState ===

impl ClusterState {
    /// Applies a pod that isn't bound, and reserves GPUs on its nominated node.
    pub(super) fn unbound(&mut self, uid: &Arc<str>, nominated: Option<&str>, demand: Demand, now: Instant) -> Touched {
        let mut touched = Touched::new();
        if self.is_confirmed(uid) {
            return touched; // the node has told of it before the API server
        }
        match self.reservation_of(uid) {
            Some(reservation) if reservation.is_announced() || nominated == Some(&reservation.planned.node) => {
                return touched;
            }
            Some(reservation) if reservation.source == Source::Gang && nominated.is_none() => return touched,
            Some(_) => touched.extend(self.failed(uid)),
            None => {}
        }
        let demand = Arc::new(demand);
        self.pods
            .insert(Arc::clone(uid), Pod { priority: demand.priority, state: State::Waiting(Arc::clone(&demand)) });
        if let Some(node) = nominated.and_then(|name| self.known_node(name)) {
            touched.extend(self.nominate(&demand, &node, now + REPORTED_WITHIN));
        }
        touched
    }

    /// Reserves what is free already, or else what ended pods leave, or else what pods of lower priority may leave.
    fn nominate(&mut self, demand: &Arc<Demand>, node: &Arc<str>, deadline: Instant) -> Touched {
        let Some(node) = self.node(node) else { return Touched::new() };
        let policy = demand.policies(&self.config).cards;
        let kept_on = |cards: &[Card]| {
            let plan = plan(cards, &node.links, &demand.request(), &policy).ok()?;
            Some(Reservation::new(Source::Nomination, Arc::clone(demand), &node.name, (cards, &plan), deadline))
        };
        let is_gone = |holder: &Holder| !self.pods.contains_key(&holder.uid);
        let is_lower = |holder: &Holder| holder.priority < demand.priority;
        let kept = kept_on(&node.cards)
            .or_else(|| kept_on(&node.cards_without(is_gone)))
            .or_else(|| kept_on(&node.cards_without(|holder| is_gone(holder) || is_lower(holder))));
        kept.map_or_else(Touched::new, |kept| self.reserve(&demand.uid, kept))
    }

    /// Plans nominations of a node anew after its report, which may show GPUs that evicted pods have left.
    pub(super) fn renew_nominations(&mut self, node: &Arc<str>, uids: &[Arc<str>]) {
        if !matches!(self.reports.get(node), Some(Ok(_))) {
            return; // it may be usable again before long
        }
        let kept = uids.iter().filter_map(|uid| self.reservation_of(uid));
        let kept = kept.filter(|reservation| reservation.source == Source::Nomination);
        let mut nominated: Vec<_> = kept.map(|kept| (Arc::clone(&kept.demand), kept.deadline)).collect();
        nominated.sort_by_key(|(demand, _)| Reverse(demand.priority));
        for (demand, _) in &nominated {
            self.failed(&demand.uid);
        }
        for (demand, deadline) in &nominated {
            self.nominate(demand, node, *deadline);
        }
    }
}
