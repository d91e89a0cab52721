//! Reservations for preemptors: GPUs that evictions free are kept from the nomination until the pod is bound.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use divvy_placement::{Card, plan};

use super::{ClusterState, Touched};
use crate::demand::Demand;
use crate::pod::PodView;
use crate::snapshot::Holder;
use crate::state::{REPORTED_WITHIN, Reservation, Source};

// === impl ClusterState ===

impl ClusterState {
    /// Applies a pod that isn't bound, and reserves GPUs on its nominated node.
    pub(super) fn unbound(&mut self, uid: &Arc<str>, pod: &PodView, demand: Demand, now: Instant) -> Touched {
        let mut touched = Touched::new();
        if self.is_confirmed(uid) {
            return touched; // the node has told of it before the API server
        }
        // With our gate no scheduler has seen the pod: a nomination is half of what a leader wanted to write.
        let nominated = pod.nominated.as_deref().filter(|_| !pod.scheduling.has_our_gate());
        match self.reservation_mut(uid) {
            Some(Reservation { source, planned, is_shown, deadline, .. }) if source.is_nominated() => {
                let stands = nominated == Some(&planned.node);
                // Until the watch shows it, events are older than what was written.
                if stands || !*is_shown {
                    // Whether or not the write has been answered.
                    if stands && !*is_shown {
                        (*is_shown, *deadline) = (true, now + REPORTED_WITHIN);
                    }
                    return touched;
                }
                // The scheduler has found no room, or wants it elsewhere.
                self.queue.turn_down(uid, now);
                touched.extend(self.failed(uid));
            }
            // Pods are being evicted for it, and no scheduler has seen it.
            Some(kept) if kept.source == Source::Nomination && pod.scheduling.has_our_gate() => return touched,
            Some(reservation) if reservation.is_announced() || nominated == Some(&reservation.planned.node) => {
                return touched;
            }
            Some(_) => touched.extend(self.failed(uid)),
            None => {}
        }
        let (demand, deadline) = (Arc::new(demand), now + REPORTED_WITHIN);
        self.wait(&demand);
        if self.queue.rests(uid, now) {
            self.queue.remove(uid);
        }
        let Some(node) = nominated.and_then(|name| self.known_node(name)) else { return touched };
        let is_ours = self.config.planned.include(&demand.scheduling.scheduler, demand.group.is_some());
        match pod.planned().filter(|planned| *planned.node == *node && is_ours) {
            Some(planned) => {
                let (source, bound) = (Source::Nominated, false);
                let read = Reservation { demand, planned, source, bound, is_shown: true, deadline };
                touched.extend(self.reserve(uid, read));
            }
            None => touched.extend(self.nominate(&demand, &node, deadline)),
        }
        touched
    }

    /// Reserves what a bound pod will probably get of a node that nobody has planned for it: the node decides.
    pub(super) fn follow(&mut self, demand: &Arc<Demand>, node: &str, deadline: Instant) -> Touched {
        let node = self.known_node(node).and_then(|name| self.node(&name));
        let Some(node) = node else { return Touched::new() };
        let cards = node.cards_without(|holder| holder.uid == demand.uid);
        let Ok(plan) = plan(&cards, &node.links, &demand.request(), &demand.policies(&self.config).cards) else {
            return Touched::new();
        };
        let found = Reservation::new(Source::Read, Arc::clone(demand), &node.name, (&cards, &plan), deadline);
        self.reserve(&demand.uid, Reservation { bound: true, is_shown: true, ..found })
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
