//! A pod's reservation on a node: the plan that is bound, or goes with the gate.

use std::sync::Arc;
use std::time::Instant;

use divvy_api::annotation::Planned;
use divvy_placement::{NoPlan, plan};

use super::{BOUND_WITHIN, ClusterState, Reservation, Source};
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
}
