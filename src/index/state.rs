//! State behind the published nodes: reports of nodes, pods, and reservations on top of the reports.

mod decayed_counts;
mod distribution;
mod gangs;
mod nodes;
mod nomination;
mod outcome;
mod pods;
mod queue;
mod quotas;
mod report;
mod requested;
mod reservation;
mod reserve;
mod shared;
mod waker;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use divvy_api::pod::wire::Resources;
use divvy_placement::{ExpectedRequests, Hardware};

use crate::demand::{Demand, Exceeded, SchedulingConfig};
use crate::nodes::{NodeObject, Table, View};
use crate::snapshot::PodContext;

pub use decayed_counts::DecayedCounts;
pub use distribution::next_distribution;
pub(crate) use gangs::{Due, Start};
pub use outcome::{Outcome, Outcomes};
pub use quotas::QuotaUse;
pub use report::Unusable;

use distribution::RequestDistribution;
use gangs::Gangs;
pub(crate) use queue::Parked;
use queue::Queue;
use quotas::Quotas;
use report::Report;
use requested::Requested;
pub(crate) use reservation::{BOUND_WITHIN, REPORTED_WITHIN, Reservation, Source};
pub use reserve::NotReserved;
use shared::SharedValues;
pub(crate) use waker::Waker;

/// What the watches have shown, what the leader has reserved, and the nodes that are published of it: all of it behind one
/// lock.
#[derive(Debug)]
pub(crate) struct ClusterState {
    pub(crate) config: Arc<SchedulingConfig>,
    reports: HashMap<Arc<str>, Result<Report, Unusable>>,
    /// Node objects by name.
    node_objects: HashMap<String, Arc<NodeObject>>,
    /// Whether all Nodes have been listed once.
    has_listed_nodes: bool,
    /// Pods that ask for cards, by UID.
    pods: HashMap<Arc<str>, Pod>,
    /// UIDs of pods with a reservation, by node.
    reserved: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Pods that have ended since a list of pods was begun, which may still contain them.
    ended: Option<BTreeSet<Arc<str>>>,
    /// Node whose report was the last by which a pod may fit that didn't before.
    freed: Option<Arc<str>>,
    shared: SharedValues,
    requested: Requested,
    pub(crate) quotas: Quotas,
    pub(crate) gangs: Gangs,
    /// Pods that are to be planned.
    pub(crate) queue: Queue,
    /// Pods that are evicted for others, by the UID of whom they leave for.
    pub(crate) victims: HashMap<Arc<str>, Vec<Arc<str>>>,
    /// Nodes that may take more than before, if only by evictions, since the planner has looked.
    pub(crate) gained: Touched,
    /// Pods that have our gate and aren't to be planned, as they request no GPUs, or are of another scheduler: by UID, with
    /// namespace and name.
    pub(crate) astray: BTreeMap<Arc<str>, (String, String)>,
    /// Pods without our gate whose status says that GPUs are reserved by a nomination that has ended, by UID.
    pub(crate) in_vain: BTreeMap<Arc<str>, InVain>,
    /// Pods that are left out of evictions until this time: a PodDisruptionBudget has kept them.
    pub(crate) spared: HashMap<Arc<str>, Instant>,
    pub(crate) distribution: RequestDistribution,
    pub(crate) outcomes: Outcomes,
    revision: u64,
    /// The nodes as readers see them.
    table: Table,
    pub(crate) waker: Option<Waker>,
}

/// A pod that asks for cards and hasn't ended.
#[derive(Debug)]
struct Pod {
    name: Arc<str>,
    priority: i32,
    state: State,
}

/// What the status of a pod says that had no use of its nomination.
#[derive(Debug)]
pub(crate) struct InVain {
    /// The node.
    pub(crate) node: String,
    /// When it is to be changed, if the API server has refused that.
    pub(crate) next: Option<Instant>,
}

/// Phase of a pod that asks for cards.
#[derive(Debug)]
enum State {
    /// Not bound, as far as is known.
    Waiting(Arc<Demand>),
    /// Bound or about to be, and not in the node's ledger yet.
    Reserved(Box<Reservation>),
    /// In the node's ledger.
    Confirmed,
}

/// Nodes that have to be published anew.
pub(crate) type Touched = BTreeSet<Arc<str>>;

// === impl Pod ===

impl Pod {
    fn new(demand: &Demand, state: State) -> Self {
        Self { name: demand.name.as_str().into(), priority: demand.priority, state }
    }
}

// === impl ClusterState ===

impl ClusterState {
    pub(crate) fn new(config: Arc<SchedulingConfig>) -> Self {
        Self {
            config,
            reports: HashMap::new(),
            node_objects: HashMap::new(),
            has_listed_nodes: false,
            pods: HashMap::new(),
            reserved: HashMap::new(),
            ended: None,
            freed: None,
            shared: SharedValues::default(),
            requested: Requested::default(),
            quotas: Quotas::default(),
            gangs: Gangs::default(),
            victims: HashMap::new(),
            queue: Queue::default(),
            gained: Touched::new(),
            astray: BTreeMap::new(),
            in_vain: BTreeMap::new(),
            spared: HashMap::new(),
            distribution: RequestDistribution::default(),
            outcomes: Outcomes::default(),
            revision: 0,
            table: Table::default(),
            waker: None,
        }
    }

    /// All nodes at this moment.
    pub(crate) fn view(&self) -> &View {
        self.table.view()
    }

    /// What is known of a pod beside the nodes.
    pub(crate) fn context_of(&self, demand: &Demand) -> PodContext {
        let reserved_on = self.reservation_of(&demand.uid).map(|reservation| &*reservation.planned.node);
        PodContext {
            exceeded: self.exceeded(demand),
            used_up: self.quotas.used_up(demand),
            reserved_at: reserved_on.and_then(|node| self.view().place(node)),
            group: if self.view().has_cliques() { self.nodes_of_group(demand) } else { None },
            group_waits: demand.group.as_ref().and_then(|group| self.queue.group_waits(group)).cloned(),
        }
    }

    /// Sets the requests that `least-fragmentation` keeps capacity for.
    pub(crate) fn expect(&mut self, expected: ExpectedRequests) {
        self.table.expect(expected);
    }

    /// Models of which the pod may have no GPUs by its namespace's quotas.
    pub(crate) fn exceeded(&self, demand: &Demand) -> Vec<Exceeded> {
        if !self.quotas.has(&demand.namespace) {
            return Vec::new();
        }
        let own_node = self.reservation_of(&demand.uid).map(|reservation| &*reservation.planned.node);
        let kinds: Vec<&Hardware> = self.shared.present().collect();
        self.quotas.exceeded(demand, &kinds, own_node)
    }

    /// Demand of a pod that waits or has a reservation.
    pub(crate) fn demand(&self, uid: &str) -> Option<&Arc<Demand>> {
        match &self.pods.get(uid)?.state {
            State::Waiting(demand) => Some(demand),
            State::Reserved(reservation) => Some(&reservation.demand),
            State::Confirmed => None,
        }
    }

    /// Demand of a pod that isn't bound and has no reservation.
    pub(crate) fn waits(&self, uid: &str) -> Option<&Arc<Demand>> {
        match &self.pods.get(uid)?.state {
            State::Waiting(demand) => Some(demand),
            State::Reserved(_) | State::Confirmed => None,
        }
    }

    pub(crate) fn reservation_of(&self, uid: &str) -> Option<&Reservation> {
        match &self.pods.get(uid)?.state {
            State::Reserved(reservation) => Some(reservation),
            State::Waiting(_) | State::Confirmed => None,
        }
    }

    /// Pods that aren't bound.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Arc<Demand>> {
        self.pods.values().filter_map(|pod| match &pod.state {
            State::Waiting(demand) => Some(demand),
            State::Reserved(_) | State::Confirmed => None,
        })
    }

    /// The node whose report was the last by which a waiting pod may fit that didn't before, once; nothing while none waits.
    pub(crate) fn take_freed(&mut self) -> Option<Arc<str>> {
        let freed = self.freed.take()?;
        self.waiting().next().map(|_| freed)
    }

    /// UIDs of pods that haven't ended: those that ask for cards, members of gangs, and all that are on nodes.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pods.keys().chain(self.gangs.pods()).chain(self.requested.pods_on_nodes())
    }

    /// Reservations that pods carry or are about to, by UID.
    pub(crate) fn reservations(&self) -> impl Iterator<Item = (Arc<str>, &Reservation)> {
        let all = self.reserved.values().flatten();
        all.filter_map(|uid| {
            Some((Arc::clone(uid), self.reservation_of(uid).filter(|reservation| reservation.is_announced())?))
        })
    }

    /// Whether the pod is in a node's ledger.
    pub(crate) fn is_confirmed(&self, uid: &str) -> bool {
        matches!(self.pods.get(uid), Some(Pod { state: State::Confirmed, .. }))
    }

    /// Name of a pod that asks for cards.
    pub(crate) fn name_of(&self, uid: &str) -> Option<&Arc<str>> {
        Some(&self.pods.get(uid)?.name)
    }

    /// What a pod on a node requests of it.
    pub(crate) fn requests_of(&self, uid: &str) -> Option<&Resources> {
        self.requested.requests(uid)
    }

    /// Pods with our gate for which others are being evicted.
    pub(crate) fn preemptors(&self) -> Vec<Arc<Demand>> {
        let kept = self.reserved.values().flatten().filter_map(|uid| self.reservation_of(uid));
        let kept = kept.filter(|kept| kept.source == Source::Nomination && kept.demand.scheduling.has_our_gate());
        kept.map(|kept| Arc::clone(&kept.demand)).collect()
    }

    /// Whether a pod is to be planned.
    pub(crate) fn is_queued(&self, uid: &str) -> bool {
        self.queue.has(uid)
    }
}
