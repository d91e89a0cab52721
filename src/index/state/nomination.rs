//! Reservations for preemptors: GPUs that evictions free are kept from the nomination until the pod is bound.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::annotation::Planned;
use divvy_placement::{NodeState, plan};

use super::{ClusterState, InVain, Touched};
use crate::demand::Demand;
use crate::nodes::Holder;
use crate::pod::PodView;
use crate::state::queue::Why;
use crate::state::{BOUND_WITHIN, Reservation, Source};

// === impl ClusterState ===

impl ClusterState {
    /// Applies a pod that isn't bound, and reserves GPUs on its nominated node.
    pub(super) fn unbound(&mut self, uid: &Arc<str>, pod: &PodView, demand: Demand, now: Instant) -> Touched {
        let mut touched = Touched::new();
        if self.is_confirmed(uid) {
            return touched; // the node has told of it before the API server
        }
        // With our gate no scheduler has seen the pod: a nomination is half of what a leader wanted to write.
        let is_gated = pod.scheduling.has_our_gate();
        let nominated = pod.nominated.as_deref().filter(|_| !is_gated);
        let is_ours = self.config.planned.include(&demand.scheduling.scheduler, demand.group.is_some());
        let planned = pod.planned().filter(|planned| nominated.is_none_or(|node| planned.node == node) && is_ours);
        let said = planned.as_ref().filter(|_| !is_gated && pod.is_placed);
        // What is being written may be refused.
        self.note_vain(uid, said, nominated);
        let bound_within = self.bound_within(uid);
        match self.reservation_mut(uid) {
            Some(Reservation { source, planned, is_shown, deadline, demand, .. }) if source.is_nominated() => {
                let stands = nominated == Some(&planned.node);
                let was_gated = demand.scheduling.has_our_gate();
                // The gate goes after the nomination, and the plan with it. Until that is shown, all else is older than it.
                let has_plan = || pod.planned().as_ref() == Some(&*planned);
                if !*is_shown && (stands || was_gated && !is_gated && has_plan()) {
                    (*is_shown, *deadline) = (true, now + bound_within);
                }
                // A pod that evicts nobody keeps its nomination (`DefaultPreemption` of kube-scheduler changes it only where it
                // was allowed to evict).
                let is_kept_in_vain = was_gated && pod.is_unschedulable && pod.scheduling.never_preempts;
                if !*is_shown || stands && !is_kept_in_vain {
                    return touched;
                }
                // The scheduler has found no room, or wants it elsewhere.
                touched.extend(self.turn_down(uid, now));
            }
            // Pods are being evicted for it, and no scheduler has seen it.
            Some(kept) if kept.source == Source::Nomination && pod.scheduling.has_our_gate() => return touched,
            Some(reservation) if reservation.is_announced() || nominated == Some(&reservation.planned.node) => {
                return touched;
            }
            Some(_) => touched.extend(self.failed(uid)),
            None => {}
        }
        self.note_vain(uid, said, nominated);
        let demand = Arc::new(demand);
        let deadline = now + self.bound_within(uid);
        self.wait(&demand);
        if self.queue.rests(uid, now) {
            self.queue.remove(uid);
        }
        let Some(node) = nominated.and_then(|name| self.known_node(name)) else { return touched };
        if self.is_in_vain(&demand) {
            return touched;
        }
        match planned {
            Some(planned) => {
                let source = Source::Nominated;
                let bound = false;
                let read = Reservation { demand, planned, source, bound, is_shown: true, deadline };
                touched.extend(self.reserve(uid, read));
            }
            None => touched.extend(self.nominate(&demand, &node, now + self.config.nomination_timeout)),
        }
        touched
    }

    /// Notes whether the status of a pod says that GPUs are reserved by this plan, though the pod isn't nominated any more.
    fn note_vain(&mut self, uid: &Arc<str>, said: Option<&Planned>, nominated: Option<&str>) {
        let is_other = |vain: &InVain| nominated.is_some_and(|node| node != vain.node);
        match said.filter(|_| !self.in_vain.get(uid).is_some_and(is_other)) {
            Some(planned) if nominated.is_none() => {
                let vain = || InVain { node: planned.node.clone(), next: None };
                self.in_vain.entry(Arc::clone(uid)).or_insert_with(vain);
            }
            // It is older than what was noted, or the nomination still stands.
            Some(_) => {}
            None => drop(self.in_vain.remove(uid)),
        }
    }

    /// Drops a plan that the pod's scheduler had no use of, and leaves the pod alone for a while.
    pub(super) fn turn_down(&mut self, uid: &Arc<str>, now: Instant) -> Touched {
        let Some(Reservation { demand, planned, .. }) = self.reservation_of(uid) else { return Touched::new() };
        let vain = InVain { node: planned.node.clone(), next: None };
        let why = if self.starts_together(demand) { Why::TurnedDownTogether } else { Why::TurnedDown };
        self.in_vain.insert(Arc::clone(uid), vain);
        self.queue.rest(uid, why, now);
        let touched = self.failed(uid);
        if self.queue.rests(uid, now) {
            self.queue.remove(uid);
        }
        touched
    }

    /// Longest time for which GPUs are reserved for a pod that its scheduler is to bind. One that has turned it down looks at it
    /// again at an event, which may be the one by which it was planned, or none.
    fn bound_within(&self, uid: &str) -> Duration {
        if self.queue.was_turned_down(uid) { BOUND_WITHIN } else { self.config.nomination_timeout }
    }

    /// The nomination of a pod has been written.
    pub(crate) fn nominated(&mut self, uid: &str, now: Instant) {
        let deadline = now + self.bound_within(uid);
        self.queue.written(uid);
        self.in_vain.remove(uid);
        self.renew(uid, deadline);
    }

    /// Reserves what a bound pod will probably get of a node that nobody has planned for it: the node decides.
    pub(super) fn follow(&mut self, demand: &Arc<Demand>, node: &str, deadline: Instant) -> Touched {
        let node = self.known_node(node).and_then(|name| self.node(&name));
        let Some(node) = node else { return Touched::new() };
        let state = node.state_without(|holder| holder.uid == demand.uid);
        let Ok(plan) = plan(&state, &demand.request(), &demand.policies(&self.config).cards) else {
            return Touched::new();
        };
        let found = Reservation::new(Source::Read, Arc::clone(demand), &node.name, (node.cards(), &plan), deadline);
        self.reserve(&demand.uid, Reservation { bound: true, is_shown: true, ..found })
    }

    /// Reserves what is free already, or else what ended pods leave, or else what pods of lower priority may leave.
    fn nominate(&mut self, demand: &Arc<Demand>, node: &Arc<str>, deadline: Instant) -> Touched {
        let Some(node) = self.node(node) else { return Touched::new() };
        let policy = demand.policies(&self.config).cards;
        let kept_on = |state: &NodeState| {
            let plan = plan(state, &demand.request(), &policy).ok()?;
            Some(Reservation::new(Source::Nomination, Arc::clone(demand), &node.name, (node.cards(), &plan), deadline))
        };
        let is_gone = |holder: &Holder| !self.pods.contains_key(&holder.uid);
        let is_lower = |holder: &Holder| holder.priority < demand.priority;
        let kept = kept_on(&node.state)
            .or_else(|| kept_on(&node.state_without(is_gone)))
            .or_else(|| kept_on(&node.state_without(|holder| is_gone(holder) || is_lower(holder))));
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
