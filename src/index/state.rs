//! State behind the published nodes: reports of nodes, pods, and reservations on top of the reports.

mod decayed_counts;
mod distribution;
mod gangs;
mod nomination;
mod outcome;
mod queue;
mod quotas;
mod report;
mod requested;
mod reservation;
mod reserve;
mod shared;
mod waker;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::Tier;
use divvy_api::gpunode::GpuNodeReport;
use divvy_api::names::CLIQUE;
use divvy_api::pod::PodSum;
use divvy_api::pod::wire::Resources;
use divvy_placement::{CardTable, ExpectedRequests, Hardware, NodeState, Taken};

use crate::demand::{Demand, Exceeded, SchedulingConfig};
use crate::nodes::{Holder, Node, NodeObject, Table, Unschedulable, View};
use crate::pod::{PodEnd, PodView};
use crate::pod_group::{PodGroup, PodGroupApi};
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
use queue::{Queue, Why};
use quotas::Quotas;
use report::{Report, Reported};
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

/// Time until the status of a pod is to be changed again that the API server has refused to have changed.
const WITHDRAWN_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Longest time until the watch shows what has become of a pod whose change the API server has refused.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

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

    /// Publishes nodes that have changed to readers, and wakes the planner.
    pub(crate) fn publish(&mut self, touched: Touched) {
        self.table.know(self.shared.hardware());
        for name in touched {
            let Some(node) = self.node(&name) else { continue };
            let nothing = NodeState::default();
            let grounds = CardTable::new(if node.closed.is_none() { &node.state } else { &nothing });
            if self.view().find(&name).is_none_or(|before| node.has_gained(before)) {
                self.gained.insert(name);
            }
            self.table.publish(node, grounds);
        }
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Applies a `GpuNode` that was added or changed, and publishes its node.
    pub(crate) fn apply_gpu_node(&mut self, name: &str, read: GpuNodeReport) {
        let before = self.view().find(name).cloned();
        let touched = self.report(name, read);
        self.publish(touched);
        let now = self.view().find(name);
        if let Some(now) = now.filter(|now| before.is_none_or(|before| now.has_gained(&before))) {
            self.freed = Some(Arc::clone(&now.name));
        }
    }

    fn report(&mut self, name: &str, read: GpuNodeReport) -> Touched {
        let report = Report::new(read, &self.config, &mut self.shared);
        let name: Arc<str> = self.reports.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        if let Ok(report) = &report {
            self.shared.come(&report.hardware);
        }
        if let Some(Ok(before)) = self.reports.insert(Arc::clone(&name), report) {
            self.shared.go(&before.hardware);
        }
        let reserved: Vec<Arc<str>> = self.reserved.get(&name).into_iter().flatten().cloned().collect();
        for uid in &reserved {
            self.confirm(uid, &name);
        }
        self.renew_nominations(&name, &reserved);
        [name].into()
    }

    /// Applies a Node that was added or changed. Heartbeats change nothing.
    pub(crate) fn apply_node(&mut self, name: &str, object: NodeObject) -> Touched {
        if self.node_objects.get(name).is_some_and(|known| **known == object) {
            return Touched::new();
        }
        let object = Arc::new(object);
        let before = self.node_objects.insert(name.to_owned(), Arc::clone(&object));
        let is_news = before.is_none_or(|before| !before.schedules_like(&object));
        self.known_node(name).filter(|_| is_news).into_iter().collect()
    }

    /// Removes a Node that was deleted.
    pub(crate) fn delete_node(&mut self, name: &str) -> Touched {
        self.node_objects.remove(name);
        self.known_node(name).into_iter().collect()
    }

    /// Removes Nodes that aren't in this complete list; from the first list on a node without a Node is gone.
    pub(crate) fn keep_nodes(&mut self, names: &HashSet<String>) -> Touched {
        let is_first = !std::mem::replace(&mut self.has_listed_nodes, true);
        let before = self.node_objects.len();
        self.node_objects.retain(|name, _| names.contains(name));
        if !is_first && self.node_objects.len() == before {
            return Touched::new();
        }
        self.reports.keys().filter(|name| !self.node_objects.contains_key(&***name)).cloned().collect()
    }

    /// Why the scheduler gives a node no pods.
    fn unschedulable(&self, name: &str) -> Option<Unschedulable> {
        let object = self.node_objects.get(name);
        object.map_or(self.has_listed_nodes.then_some(Unschedulable::Gone), |object| object.unschedulable)
    }

    /// Why a report is out of date: the kubelet has no devices of GPUs that are healthy by the report.
    fn without_plugin(&self, name: &str, report: &Report) -> Option<Arc<str>> {
        let devices = self.node_objects.get(name)?.allocatable_gpus?;
        let is_expected = report.node.cards.iter().any(|card| card.is_healthy() && card.requested_profile().is_none());
        (devices == 0 && is_expected).then(|| {
            let resource = &self.config.names.count;
            format!("divvy-node isn't registered there: the kubelet has 0 allocatable {resource}").into()
        })
    }

    /// Nodes whose report is out of date, and why.
    pub(crate) fn all_without_plugin(&self) -> impl Iterator<Item = (Arc<str>, Arc<str>)> {
        let readable = self.reports.iter().filter_map(|(name, report)| Some((name, report.as_ref().ok()?)));
        readable.filter_map(|(name, report)| Some((Arc::clone(name), self.without_plugin(name, report)?)))
    }

    /// Node objects by name.
    pub(crate) fn node_objects(&self) -> &HashMap<String, Arc<NodeObject>> {
        &self.node_objects
    }

    /// NVLink domain and clique of a node: by its Node, else as its daemon reports.
    fn clique(&self, name: &str, report: &Report) -> Option<Arc<str>> {
        let label = self.node_objects.get(name).and_then(|object| object.labels.get(CLIQUE));
        label.map(|clique| clique.as_str().into()).or_else(|| report.clique.clone())
    }

    /// What pods may still request on a node; `None` if what is allocatable isn't known.
    fn free(&self, name: &str) -> Option<Resources> {
        Some(self.requested.free(name, self.node_objects.get(name)?.allocatable.as_ref()?))
    }

    /// Removes nodes whose `GpuNode` isn't in this complete list.
    pub(crate) fn keep_gpu_nodes(&mut self, names: &HashSet<String>) {
        let gone: Vec<Arc<str>> = self.reports.keys().filter(|name| !names.contains(&***name)).cloned().collect();
        for name in &gone {
            self.delete_gpu_node(name);
        }
    }

    /// Removes a node whose `GpuNode` was deleted. Pods that are there, or on their way, still count for quotas.
    pub(crate) fn delete_gpu_node(&mut self, name: &str) {
        self.table.withdraw(name);
        if let Some(Ok(report)) = self.reports.remove(name) {
            self.shared.go(&report.hardware);
        }
        self.quotas.retain(name, |uid| self.requested.is_on(uid, name));
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

    /// Begins or ends the list of pods beside the watch.
    pub(crate) fn read_list(&mut self, is_read: bool) {
        self.ended = is_read.then(BTreeSet::new);
    }

    /// Applies a pod of that list, unless it is known to have ended since.
    pub(crate) fn listed_pod(&mut self, pod: &PodView, now: Instant) -> Touched {
        let has_ended = self.ended.as_ref().is_some_and(|ended| ended.contains(pod.uid.as_str()));
        if has_ended { Touched::new() } else { self.pod(pod, now) }
    }

    /// Applies a pod that was added or changed.
    pub(crate) fn pod(&mut self, pod: &PodView, now: Instant) -> Touched {
        // One that is deleted before it is bound never will be, whatever its finalizers wait for (`skipPodSchedule`).
        if pod.ended || pod.node.is_none() && matches!(pod.end, PodEnd::Deleted { .. }) {
            return self.end(&pod.uid, Some(Outcome::Ended));
        }
        if let Some(group) = self.gangs.come(pod) {
            self.wake_group(&group);
        }
        let demand = Demand::read(pod, &self.config);
        let Ok(Some(demand)) = demand else {
            let mut touched = self.forget(&pod.uid, None);
            let uid = Arc::from(pod.uid.as_str());
            self.gate_astray(&uid, &pod.namespace, &pod.name, pod.scheduling.has_our_gate());
            touched.extend(pod.node.iter().flat_map(|node| self.move_in(&uid, &pod.namespace, node, &pod.requests)));
            return touched;
        };
        let uid = Arc::clone(&demand.uid);
        self.astray.remove(&uid);
        let mut touched = Touched::new();
        touched.extend(pod.node.iter().flat_map(|node| self.move_in(&uid, &pod.namespace, node, &pod.requests)));
        let before = self.pods.get(&uid).map(|pod| pod.priority);
        // What others leave is no use to pods that ask for oversubscription.
        if before.is_none() && !demand.preferences.oversubscribe {
            self.distribution.count(&demand);
        }
        if let (Some(node), true) = (&pod.node, before != Some(demand.priority)) {
            touched.extend(self.known_node(node));
        }
        self.pods
            .entry(Arc::clone(&uid))
            .and_modify(|known| known.priority = demand.priority)
            .or_insert_with(|| Pod::new(&demand, State::Waiting(Arc::new(demand.clone()))));
        match &pod.node {
            Some(node) => touched.extend(self.bound(&uid, node, pod, demand, now)),
            None => touched.extend(self.unbound(&uid, pod, demand, now)),
        }
        touched
    }

    fn bound(&mut self, uid: &Arc<str>, node: &str, pod: &PodView, demand: Demand, now: Instant) -> Touched {
        let mut touched = Touched::new();
        let deadline = now + REPORTED_WITHIN;
        self.queue.forget(uid);
        self.victims.remove(uid);
        self.in_vain.remove(uid);
        let state = self.pods.get_mut(uid).map(|pod| &mut pod.state);
        match state {
            Some(State::Reserved(reservation)) if reservation.is_announced() && reservation.planned.node == node => {
                if !reservation.bound {
                    (reservation.bound, reservation.deadline) = (true, deadline);
                    self.gained.insert(node.into()); // it can be evicted now
                }
            }
            Some(state @ (State::Reserved(_) | State::Waiting(_))) => {
                let before = std::mem::replace(state, State::Confirmed);
                let mut is_elsewhere = false;
                let mut is_ours = false;
                if let State::Reserved(elsewhere) = before {
                    (is_elsewhere, is_ours) = (elsewhere.source.is_nominated(), elsewhere.source.is_ours());
                    touched.extend(self.unlist(uid, &elsewhere.planned.node));
                }
                match pod.planned() {
                    Some(planned) if planned.node == node => {
                        let demand = Arc::new(demand);
                        let source = Source::Read;
                        let bound = true;
                        let read = Reservation { demand, planned, source, bound, is_shown: true, deadline };
                        touched.extend(self.reserve(uid, read));
                    }
                    Some(_) if is_elsewhere => {
                        if is_ours {
                            self.outcomes.count(Outcome::Elsewhere);
                        }
                        touched.extend(self.follow(&Arc::new(demand), node, deadline));
                    }
                    Some(_) | None => {}
                }
            }
            Some(State::Confirmed) | None => {}
        }
        touched.extend(self.confirm(uid, node));
        touched
    }

    /// Removes a pod that has ended.
    pub(crate) fn end(&mut self, uid: &str, outcome: Option<Outcome>) -> Touched {
        if let Some(ended) = &mut self.ended {
            ended.insert(uid.into());
        }
        self.gangs.go(uid);
        let mut touched = self.forget(uid, outcome);
        touched.extend(self.move_out(uid));
        touched
    }

    /// Counts the pod's requests on a node.
    fn move_in(&mut self, uid: &Arc<str>, namespace: &str, node: &str, requests: &Resources) -> Touched {
        let namespace = self.shared.namespace(namespace);
        let nodes = self.requested.come(uid, namespace, node, requests);
        let known = |at: &Arc<str>| if **at == *node { self.known_node(at) } else { self.left(uid, at) };
        nodes.iter().filter_map(known).collect()
    }

    fn move_out(&mut self, uid: &str) -> Option<Arc<str>> {
        self.requested.go(uid).and_then(|node| self.left(uid, &node))
    }

    /// Removes a pod that holds no cards and never will.
    fn forget(&mut self, uid: &str, outcome: Option<Outcome>) -> Touched {
        self.queue.forget(uid);
        self.victims.remove(uid);
        self.astray.remove(uid);
        self.in_vain.remove(uid);
        let Some((uid, pod)) = self.pods.remove_entry(uid) else { return Touched::new() };
        let State::Reserved(reservation) = pod.state else { return Touched::new() };
        outcome.filter(|_| reservation.source.is_ours()).into_iter().for_each(|outcome| self.outcomes.count(outcome));
        self.unlist(&uid, &reservation.planned.node)
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

    pub(crate) fn reserve(&mut self, uid: &Arc<str>, reservation: Reservation) -> Touched {
        let node =
            self.known_node(&reservation.planned.node).unwrap_or_else(|| reservation.planned.node.as_str().into());
        self.queue.remove(uid);
        let Demand { namespace, requests, .. } = &*reservation.demand;
        let mut touched = self.move_in(uid, namespace, &node, requests);
        self.reserved.entry(Arc::clone(&node)).or_default().insert(Arc::clone(uid));
        let demand = Arc::clone(&reservation.demand);
        self.pods.insert(Arc::clone(uid), Pod::new(&demand, State::Reserved(Box::new(reservation))));
        touched.insert(node);
        touched
    }

    /// Takes our gate off a pod, as the watch will show.
    pub(crate) fn ungated(&mut self, uid: &str) -> Touched {
        self.astray.remove(uid);
        if let Some(demand) = self.waits(uid) {
            self.wait(&Arc::new(demand.without_our_gate()));
        }
        Touched::new()
    }

    /// The status of a pod says no longer that GPUs are reserved.
    pub(crate) fn withdrawn(&mut self, uid: &str, now: Instant) {
        self.in_vain.remove(uid);
        if let Some(demand) = self.waits(uid)
            && !self.queue.rests(uid, now)
        {
            self.wait(&Arc::clone(demand));
        }
    }

    /// The status of a pod couldn't be changed that says that GPUs are reserved.
    pub(crate) fn refused_to_withdraw(&mut self, uid: &str, now: Instant) -> Touched {
        if let Some(vain) = self.in_vain.get_mut(uid) {
            vain.next = Some(now + WITHDRAWN_AGAIN_AFTER);
        }
        Touched::new()
    }

    /// What was to be written of a pod has been refused: it is left alone for a while, and its reservation for this purpose ends. A
    /// plan does in a second: the watch may be about to show that the pod is bound.
    pub(crate) fn refused(&mut self, uid: &Arc<str>, purpose: Option<Source>, now: Instant) -> Touched {
        let mut touched = Touched::new();
        match (purpose, self.reservation_mut(uid)) {
            (Some(Source::Planned), Some(kept)) if kept.source == Source::Planned => kept.deadline = now + SHOWN_WITHIN,
            (Some(purpose), Some(_)) => touched.extend(self.failed_as(uid, purpose)),
            _ => {}
        }
        if self.pods.contains_key(uid) || self.astray.contains_key(uid) {
            self.queue.rest(uid, Why::Refused, now);
        }
        touched
    }

    /// Has the lines of all groups of this API tried again.
    pub(crate) fn wake_groups(&mut self, api: PodGroupApi) {
        self.gangs.all_changed(api);
        self.queue.wake_groups(api);
    }

    /// Whether the status of a pod is to be changed before it is planned again. Of a pod that starts with others of its group it is
    /// changed when they are planned.
    pub(crate) fn is_in_vain(&self, demand: &Demand) -> bool {
        self.in_vain.contains_key(&demand.uid) && !self.starts_together(demand)
    }

    /// Has the pods of a group whose `PodGroup` has come, changed or gone wait as it says now.
    pub(crate) fn regroup(&mut self, group: &Arc<PodGroup>) {
        let in_vain = self.in_vain.keys().filter_map(|uid| self.waits(uid));
        let members = in_vain.filter(|demand| demand.group.as_ref() == Some(group));
        let members: Vec<Arc<Demand>> = members.cloned().collect();
        for demand in &members {
            self.wait(demand);
        }
        self.wake_group(group);
    }

    /// Has the line of a group tried again, if it has one, also if it is being tried.
    pub(crate) fn wake_group(&mut self, group: &Arc<PodGroup>) {
        self.gangs.changed(group);
        self.queue.wake_group(group);
    }

    /// Drops a reservation of a node, planned or kept while pods are evicted there.
    pub(crate) fn failed_as(&mut self, uid: &str, purpose: Source) -> Touched {
        let is_for_this = self.reservation_of(uid).is_some_and(|reservation| reservation.source == purpose);
        if is_for_this { self.failed(uid) } else { Touched::new() }
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

    /// Notes whether a pod has our gate for no reason, or has it no more.
    fn gate_astray(&mut self, uid: &Arc<str>, namespace: &str, name: &str, is_astray: bool) {
        if is_astray {
            self.astray.insert(Arc::clone(uid), (namespace.to_owned(), name.to_owned()));
        } else {
            self.astray.remove(uid);
        }
    }

    /// Has a pod wait, and be planned if that is ours to do.
    fn wait(&mut self, demand: &Arc<Demand>) {
        let uid = Arc::clone(&demand.uid);
        let is_of_others = !self.config.planned.include(&demand.scheduling.scheduler, demand.group.is_some());
        if is_of_others || demand.scheduling.has_other_gates() || self.is_in_vain(demand) {
            self.queue.remove(&uid);
        } else {
            self.queue.add(demand);
        }
        self.gate_astray(&uid, &demand.namespace, &demand.name, is_of_others && demand.scheduling.has_our_gate());
        self.pods.insert(uid, Pod::new(demand, State::Waiting(Arc::clone(demand))));
    }

    /// Has pods tried again that have been left alone long enough, and nodes looked at again whose pods may be evicted now.
    pub(crate) fn rouse(&mut self, now: Instant) -> Touched {
        let mut touched = Touched::new();
        let is_over = |_: &Arc<str>, until: &mut Instant| *until <= now;
        for (uid, _) in self.spared.extract_if(is_over) {
            self.gained.extend(self.requested.node_of(&uid).cloned());
        }
        for uid in self.queue.rested(now) {
            match self.pods.get(&uid).map(|pod| &pod.state) {
                Some(State::Waiting(demand)) => self.wait(&Arc::clone(demand)),
                Some(State::Reserved(kept)) if kept.source == Source::Planned && kept.deadline <= now => {
                    touched.extend(self.failed(&uid));
                }
                _ => {}
            }
        }
        touched
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

    fn reservation_mut(&mut self, uid: &str) -> Option<&mut Reservation> {
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
        self.move_out(&uid);
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
                self.move_out(&uid);
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
    fn confirm(&mut self, uid: &Arc<str>, node: &str) -> Touched {
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

    fn unlist(&mut self, uid: &Arc<str>, node: &str) -> Touched {
        if let Some((node, mut reserved)) = self.reserved.remove_entry(node) {
            reserved.remove(uid);
            if !reserved.is_empty() {
                self.reserved.insert(Arc::clone(&node), reserved);
            }
        }
        self.left(uid, node).into_iter().collect()
    }

    /// The node that a reservation or a pod has left, if it has a report. Without one that can be read a pod counts for quotas
    /// as long as the API server has it there.
    fn left(&mut self, uid: &str, node: &str) -> Option<Arc<str>> {
        if !matches!(self.reports.get(node), Some(Ok(_))) {
            self.quotas.retain(node, |other| other != uid || self.requested.is_on(other, node));
        }
        self.known_node(node)
    }

    fn known_node(&self, name: &str) -> Option<Arc<str>> {
        self.reports.get_key_value(name).map(|(name, _)| Arc::clone(name))
    }

    /// The node to publish; `None` if there is none.
    fn node(&mut self, name: &Arc<str>) -> Option<Node> {
        self.revision += 1;
        let revision = self.revision;
        let report = match self.reports.get(name)? {
            Ok(report) => report,
            Err(unusable) => {
                let unschedulable = self.unschedulable(name);
                return Some(Node { unschedulable, ..unusable_node(name, unusable, revision) });
            }
        };
        let holders = self.holders(name, report);
        // A node may report what it likes: a namespace is charged for pods that the API server shows there. A reservation puts
        // its pod there at once.
        let is_there = |holder: &&Holder| self.requested.is_of(&holder.uid, &holder.namespace, name);
        // A pod that is only nominated holds nothing yet.
        let is_only_nominated = |holder: &&Holder| {
            self.reservation_of(&holder.uid).is_some_and(|reservation| reservation.source == Source::Nomination)
        };
        let there = holders.iter().filter(is_there).filter(|holder| !is_only_nominated(holder));
        let there: Vec<&Holder> = there.collect();
        self.quotas.hold(name, &report.node.cards, &there);
        let mut state = report.empty();
        state.hold(holders.iter().flat_map(|holder| holder.on.iter().copied()));
        Some(Node {
            name: Arc::clone(name),
            revision,
            state,
            holders,
            closed: self.without_plugin(name, report).or_else(|| report.closed.clone()),
            tier: report.tier,
            clique: self.clique(name, report),
            unschedulable: self.unschedulable(name),
            free: self.free(name),
            object: self.node_objects.get(&**name).cloned(),
            hardware: Arc::clone(&report.hardware),
            ledger_revision: report.ledger_revision,
        })
    }

    /// Pods of the ledger and those with a reservation. A pod that the ledger shows in part takes what it holds or what it has
    /// reserved, whichever is more.
    fn holders(&self, name: &Arc<str>, report: &Report) -> Box<[Holder]> {
        let mut reserved: BTreeMap<&Arc<str>, Vec<Taken>> = BTreeMap::new();
        for uid in self.reserved.get(name).into_iter().flatten() {
            let takes = self.reservation_of(uid).and_then(|reservation| reservation.takes(&report.node));
            reserved.insert(uid, takes.unwrap_or_default());
        }
        let in_ledger = report.pods.iter().map(|Reported { uid, namespace, on, .. }| {
            let on = reserved.remove(uid).map_or_else(|| on.clone(), |reserved| either(on, &reserved));
            self.holder(uid, Arc::clone(namespace), on)
        });
        let mut holders: Vec<Holder> = in_ledger.collect();
        let rest = reserved.into_iter().filter(|(_, on)| !on.is_empty());
        let rest = rest.filter_map(|(uid, on)| {
            let demand = &self.reservation_of(uid)?.demand;
            Some(self.holder(uid, demand.namespace.as_str().into(), on.into()))
        });
        holders.extend(rest);
        holders.into()
    }

    fn holder(&self, uid: &Arc<str>, namespace: Arc<str>, on: Box<[Taken]>) -> Holder {
        Holder {
            uid: Arc::clone(uid),
            namespace,
            priority: self.pods.get(uid).map_or(i32::MAX, |pod| pod.priority),
            is_nominated: self.reservation_of(uid).is_some_and(|reservation| !reservation.is_announced()),
            on,
        }
    }
}

fn unusable_node(name: &Arc<str>, unusable: &Unusable, revision: u64) -> Node {
    Node {
        name: Arc::clone(name),
        revision,
        state: NodeState::default(),
        holders: Box::default(),
        closed: Some(unusable.to_string().into()),
        unschedulable: None,
        tier: Tier::default(),
        clique: None,
        free: None,
        object: None,
        hardware: Arc::default(),
        ledger_revision: 0,
    }
}

/// The larger share of both, card by card.
fn either(one: &[Taken], other: &[Taken]) -> Box<[Taken]> {
    let mut taken: BTreeMap<usize, Taken> = one.iter().map(|taken| (taken.card, *taken)).collect();
    for more in other {
        let known = taken.entry(more.card).or_insert(*more);
        (known.share, known.slots) = (known.share.max(more.share), known.slots.max(more.slots));
    }
    taken.into_values().collect()
}
