//! A pod's reservation on a node, from the plan that is bound, or goes with the gate, until the node's ledger shows it or it fails.

use std::sync::Arc;
use std::time::Instant;

use divvy_api::annotation::Planned;
use divvy_placement::{NoPlan, plan};

use super::report::Reported;
use super::{BOUND_WITHIN, ClusterState, Outcome, Pod, REPORTED_WITHIN, Reservation, Source, State, Touched};
use crate::demand::{Demand, Exceeded};

/// Why a pod gets no reservation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReserved {
    /// The node hasn't reported.
    #[error("node {0} has no GpuNode: divvy-node isn't running there or hasn't reported yet")]
    UnknownNode(String),
    /// The node takes no such pods.
    #[error("node {node}: {reason}")]
    Refused {
        /// The node.
        node: String,
        /// Why not.
        reason: Arc<str>,
    },
    /// The pod is bound already.
    #[error("the pod is bound to node {0} already")]
    Bound(String),
    /// Unknown whether it is bound: the Binding has been posted, and not answered yet.
    #[error("the pod may have been bound to node {0}: try again")]
    OnItsWay(String),
    /// The node has allocated GPUs to the pod already.
    #[error("the pod has been allocated GPUs already")]
    Confirmed,
    /// The pod's namespace would hold more than a `GpuQuota` allows.
    #[error("node {node}: {reason}")]
    Exceeded {
        /// The node.
        node: String,
        /// Which quota, and by what.
        reason: Arc<str>,
    },
    /// The node's GPUs can't hold the pod.
    #[error("node {node}: {source}")]
    NoPlan {
        /// The node.
        node: String,
        /// Why not, by placement.
        source: NoPlan,
    },
}

// === impl ClusterState ===

impl ClusterState {
    /// Plans the pod on a node and reserves what it takes until the node's ledger shows it. A second call answers the same, and
    /// gives the binding its time anew.
    pub(crate) fn reserve_for_binding(
        &mut self,
        demand: &Arc<Demand>,
        name: &str,
        now: Instant,
    ) -> Result<Planned, NotReserved> {
        if self.is_confirmed(&demand.uid) {
            return Err(NotReserved::Confirmed);
        }
        match self.reservation_of(&demand.uid) {
            Some(reservation) if reservation.is_announced() && reservation.planned.node == name => {
                let planned = reservation.planned.clone();
                self.renew(&demand.uid, now + BOUND_WITHIN);
                return Ok(planned);
            }
            Some(reservation) if reservation.bound => {
                return Err(NotReserved::Bound(reservation.planned.node.clone()));
            }
            // Wherever the pod turns out to be, it is counted: no node puts right what a quota gave twice.
            Some(reservation) if reservation.is_announced() && self.quotas.has(&demand.namespace) => {
                return Err(NotReserved::OnItsWay(reservation.planned.node.clone()));
            }
            Some(_) => {
                let touched = self.failed(&demand.uid);
                self.publish(touched);
            }
            None => {}
        }
        self.plan_and_reserve(demand, name, Source::Made, now)
    }

    /// Plans a pod without a reservation on a node, and reserves what it takes.
    pub(crate) fn plan_and_reserve(
        &mut self,
        demand: &Arc<Demand>,
        name: &str,
        source: Source,
        now: Instant,
    ) -> Result<Planned, NotReserved> {
        let node = self.view().find(name).cloned().ok_or_else(|| NotReserved::UnknownNode(name.to_owned()))?;
        if let Some(reason) = node.refusal(demand) {
            return Err(NotReserved::Refused { node: name.to_owned(), reason });
        }
        let exceeded = self.exceeded(demand);
        let allowed = demand.avoiding(&exceeded);
        let policy = demand.policies(&self.config).cards;
        let plan =
            plan(&node.state, &allowed.request(), &policy).map_err(|source| match node.exceeded(&exceeded).next() {
                Some(Exceeded { reason, .. }) => {
                    NotReserved::Exceeded { node: name.to_owned(), reason: Arc::clone(reason) }
                }
                None => NotReserved::NoPlan { node: name.to_owned(), source },
            })?;
        let deadline = now + BOUND_WITHIN;
        let mut reservation = Reservation::new(source, Arc::clone(demand), name, (node.cards(), &plan), deadline);
        let takes = reservation.takes(&node.state.node).unwrap_or_default();
        if let Some(reason) = self.quotas.problem(&demand.namespace, node.cards(), &takes) {
            return Err(NotReserved::Exceeded { node: name.to_owned(), reason });
        }
        reservation.planned.avoid_models = self.quotas.not_judged(&demand.namespace, node.cards(), &takes);
        let planned = reservation.planned.clone();
        let touched = self.reserve(&demand.uid, reservation);
        self.publish(touched);
        Ok(planned)
    }

    pub(crate) fn reserve(&mut self, uid: &Arc<str>, reservation: Reservation) -> Touched {
        let node =
            self.known_node(&reservation.planned.node).unwrap_or_else(|| reservation.planned.node.as_str().into());
        self.queue.remove(uid);
        let Demand { namespace, requests, .. } = &*reservation.demand;
        let mut touched = self.add_to_node(uid, namespace, &node, requests);
        self.reserved.entry(Arc::clone(&node)).or_default().insert(Arc::clone(uid));
        let demand = Arc::clone(&reservation.demand);
        self.pods.insert(Arc::clone(uid), Pod::new(&demand, State::Reserved(Box::new(reservation))));
        touched.insert(node);
        touched
    }

    /// Drops a reservation of a node, planned or kept while pods are evicted there.
    pub(crate) fn failed_as(&mut self, uid: &str, purpose: Source) -> Touched {
        let is_for_this = self.reservation_of(uid).is_some_and(|reservation| reservation.source == purpose);
        if is_for_this { self.failed(uid) } else { Touched::new() }
    }

    /// Marks a reservation as bound.
    pub(crate) fn committed(&mut self, uid: &str, now: Instant) {
        if let Some(reservation) = self.unbound_reservation(uid) {
            (reservation.bound, reservation.deadline) = (true, now + REPORTED_WITHIN);
        }
    }

    /// Gives a reservation that isn't bound more time.
    pub(crate) fn renew(&mut self, uid: &str, deadline: Instant) {
        if let Some(reservation) = self.unbound_reservation(uid) {
            reservation.deadline = deadline;
        }
    }

    pub(super) fn reservation_mut(&mut self, uid: &str) -> Option<&mut Reservation> {
        match &mut self.pods.get_mut(uid)?.state {
            State::Reserved(reservation) => Some(reservation),
            State::Waiting(_) | State::Confirmed => None,
        }
    }

    fn unbound_reservation(&mut self, uid: &str) -> Option<&mut Reservation> {
        self.reservation_mut(uid).filter(|reservation| !reservation.bound)
    }

    /// Drops a reservation whose binding failed; unless the pod is bound after all, it waits again.
    pub(crate) fn failed(&mut self, uid: &str) -> Touched {
        let Some(reservation) = self.reservation_of(uid).filter(|reservation| !reservation.bound) else {
            return Touched::new();
        };
        let demand = reservation.demand_now();
        let node = reservation.planned.node.clone();
        let uid = Arc::clone(&demand.uid);
        self.wait(&demand);
        self.remove_from_node(&uid);
        self.unlist(&uid, &node)
    }

    /// Drops reservations whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) -> Touched {
        let mut touched = Touched::new();
        let reserved: Vec<Arc<str>> = self.reserved.values().flatten().cloned().collect();
        for uid in reserved {
            let Some(reservation) = self.reservation_of(&uid).filter(|reservation| reservation.deadline <= now) else {
                continue;
            };
            let node = reservation.planned.node.clone();
            let demand = reservation.demand_now();
            let source = reservation.source;
            let is_bound = reservation.bound;
            let was_nominated = source.is_nominated() && reservation.is_shown;
            if is_bound {
                self.pods.insert(Arc::clone(&uid), Pod::new(&demand, State::Confirmed));
            } else if was_nominated {
                touched.extend(self.turn_down(&uid, now));
            } else {
                self.wait(&demand);
                self.remove_from_node(&uid);
                if self.queue.rests(&uid, now) {
                    self.queue.remove(&uid);
                }
            }
            match source {
                Source::Made | Source::Planned => {
                    self.outcomes.count(if is_bound { Outcome::Expired } else { Outcome::Unbound });
                }
                Source::Read | Source::Nominated | Source::Nomination => {}
            }
            touched.extend(self.unlist(&uid, &node));
        }
        touched
    }

    /// Ends a reservation if the node's ledger shows it in full.
    pub(super) fn confirm(&mut self, uid: &Arc<str>, node: &str) -> Touched {
        let Some(reservation) = self.reservation_of(uid) else { return Touched::new() };
        let Some(Ok(report)) = self.reports.get(node) else { return Touched::new() };
        let in_full = |shown: &&Reported| shown.containers >= reservation.demand.claiming();
        let Some(shown) = report.pod(uid).filter(in_full) else { return Touched::new() };
        let is_kept = shown.on.iter().all(|taken| reservation.names(&report.node.cards[taken.card].id));
        let outcome = if is_kept { Outcome::Kept } else { Outcome::Moved };
        if reservation.source.is_ours() {
            self.outcomes.count(outcome);
        }
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.state = State::Confirmed;
        }
        self.unlist(uid, node)
    }

    pub(super) fn unlist(&mut self, uid: &Arc<str>, node: &str) -> Touched {
        if let Some((node, mut reserved)) = self.reserved.remove_entry(node) {
            reserved.remove(uid);
            if !reserved.is_empty() {
                self.reserved.insert(Arc::clone(&node), reserved);
            }
        }
        self.node_left(uid, node).into_iter().collect()
    }
}
