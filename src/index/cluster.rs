//! Index: free and allocated capacity of every node's GPUs, filled by watches and read without waiting.
//!
//! ```text
//! GpuNode ──report──▶ state ──node──▶ table ──snapshot──▶ query ──▶ which nodes fit, and how well
//! Pod ─────demand────▶  ▲ reserve, confirm                  └─▶ score cache
//! ```
//!
//! There are two locks. The first is that of the state: what the watches have shown and what the leader has reserved. Readers
//! take a [`Snapshot`] under it, which never changes and which they hold without a lock. The second is that of the score
//! cache, which snapshots share: what it guards knows neither state nor index, so nobody who has it can ask for the first. No
//! API object is kept.

mod gangs;
mod planning;
mod preemption;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use divvy_api::annotation::Planned;
use divvy_api::gpunode::GpuNodeReport;
use divvy_api::gpuquota::GpuQuotaSpec;
use divvy_placement::ExpectedRequests;

use crate::demand::{Demand, SchedulingConfig};
use crate::nodes::NodeObject;
use crate::pod::PodView;
use crate::ranking::CachedScores;
use crate::snapshot::{PodContext, Snapshot};
use crate::state::{ClusterState, NotReserved, Outcome, Outcomes, QuotaUse, Source, Touched, Waker};
use crate::unpoisoned;

pub use planning::Step;
pub use preemption::Victim;

/// State of the cluster's GPUs, shared by extender, reviews and watches.
#[derive(Debug)]
pub struct Index {
    state: Mutex<ClusterState>,
    scores: Arc<Mutex<CachedScores>>,
    config: Arc<SchedulingConfig>,
}

// === impl Index ===

impl Index {
    /// Creates an index without nodes and pods.
    pub fn new(config: SchedulingConfig) -> Self {
        let config = Arc::new(config);
        let state = Mutex::new(ClusterState::new(Arc::clone(&config)));
        Self { state, scores: Arc::default(), config }
    }

    /// Configuration by which pods are read and compared.
    pub fn config(&self) -> &SchedulingConfig {
        &self.config
    }

    /// The cluster at this moment.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_of(&self.state(), PodContext::default())
    }

    /// The cluster at this moment, to be asked about this pod.
    pub fn snapshot_for(&self, demand: &Demand) -> Snapshot {
        let state = self.state();
        let pod = state.context_of(demand);
        self.snapshot_of(&state, pod)
    }

    fn snapshot_of(&self, state: &ClusterState, pod: PodContext) -> Snapshot {
        Snapshot {
            config: Arc::clone(&self.config),
            view: state.view().clone(),
            scores: Arc::clone(&self.scores),
            counted_pods: state.distribution.pods(),
            pod,
        }
    }

    /// Applies a `GpuNode` that was added or changed. A node of which not all can be read takes no pods until it can.
    pub fn apply_gpu_node(&self, name: &str, report: impl Into<GpuNodeReport>) {
        self.state().apply_gpu_node(name, report.into());
    }

    /// Removes a node whose `GpuNode` was deleted.
    pub fn delete_gpu_node(&self, name: &str) {
        self.state().delete_gpu_node(name);
    }

    /// Applies a Node that was added or changed.
    pub fn apply_node(&self, name: &str, object: NodeObject) {
        self.change(|state| state.apply_node(name, object));
    }

    /// Removes a Node that was deleted.
    pub fn delete_node(&self, name: &str) {
        self.change(|state| state.delete_node(name));
    }

    /// Removes Nodes that aren't in this complete list; from now on a node without a Node object is gone.
    pub fn keep_nodes(&self, names: &HashSet<String>) {
        self.change(|state| state.keep_nodes(names));
    }

    /// Removes nodes whose `GpuNode` isn't in this complete list.
    pub fn keep_gpu_nodes(&self, names: &HashSet<String>) {
        self.state().keep_gpu_nodes(names);
    }

    /// Applies a `GpuQuota` that was added or changed; one that can't be read lets its namespace have no more GPUs.
    pub fn apply_quota(&self, namespace: &str, name: &str, spec: Result<&GpuQuotaSpec, String>) {
        self.change(|state| {
            state.quotas.apply(namespace, name, spec);
            Touched::new()
        });
    }

    /// Removes a `GpuQuota` that was deleted.
    pub fn delete_quota(&self, namespace: &str, name: &str) {
        self.change(|state| {
            state.quotas.delete(namespace, name);
            Touched::new()
        });
    }

    /// Namespaces and names of the known `GpuQuota`s.
    pub fn quota_names(&self) -> Vec<(String, String)> {
        let state = self.state();
        state.quotas.names().map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect()
    }

    /// Every `GpuQuota` and its use.
    pub fn quotas(&self) -> Vec<QuotaUse> {
        self.state().quotas.all()
    }

    /// Applies a pod that was added or changed. Now and then the pods counted so far change what is
    /// [expected](Snapshot::expected).
    pub fn apply_pod(&self, pod: &PodView, now: Instant) {
        let mut state = self.state();
        let touched = state.pod(pod, now);
        state.publish(touched);
        if let Some(expected) = state.distribution.due() {
            state.expect(expected);
        }
    }

    /// Expects requests like those of all pods counted so far, after a list of them.
    pub fn expect_counted(&self) {
        let mut state = self.state();
        if let Some(expected) = state.distribution.counted() {
            state.expect(expected);
        }
    }

    /// Begins to apply a list of pods beside the watch. Pods that the watch ends meanwhile stay ended.
    pub fn begin_list(&self) {
        self.state().read_list(true);
    }

    /// Applies a pod of that list.
    pub fn apply_listed(&self, pod: &PodView, now: Instant) {
        self.change(|state| state.listed_pod(pod, now));
    }

    /// Ends that list, complete or not.
    pub fn end_list(&self) {
        self.state().read_list(false);
    }

    /// Removes a pod that was deleted.
    pub fn delete_pod(&self, uid: &str) {
        self.change(|state| state.end(uid, Some(Outcome::Ended)));
    }

    /// Sets the requests that `least-fragmentation` keeps capacity for.
    pub fn expect(&self, requests: ExpectedRequests) {
        self.state().expect(requests);
    }

    /// Nodes that carry other soft taints than they are to have, with the number that they are to have. Nodes that somebody
    /// else's taints keep such pods off are to have none; without `enabled`, no node is.
    pub fn soft_taints_due(&self, enabled: bool) -> Vec<(String, u32)> {
        let nodes = self.state().node_objects().clone();
        let snapshot = self.snapshot();
        let mut due = Vec::new();
        for (name, node) in nodes {
            let wanted = if enabled && !node.is_tainted() { snapshot.soft_taints(&name).unwrap_or(0) } else { 0 };
            if node.soft_taints() != [wanted > 0, wanted > 1] {
                due.push((name, wanted));
            }
        }
        due
    }

    /// UIDs of known pods that haven't ended.
    pub fn pods(&self) -> HashSet<Arc<str>> {
        self.state().pods().cloned().collect()
    }

    /// Pods that aren't bound.
    pub fn waiting(&self) -> Vec<Arc<Demand>> {
        self.state().waiting().cloned().collect()
    }

    /// The node whose report was the last by which a waiting pod may fit that didn't before, once; nothing while none waits.
    pub fn take_freed(&self) -> Option<Arc<str>> {
        self.state().take_freed()
    }

    /// Nodes whose kubelet has none of the GPUs that their `GpuNode` reports healthy, and what to say of it.
    pub fn without_plugin(&self) -> Vec<(Arc<str>, Arc<str>)> {
        self.state().all_without_plugin().collect()
    }

    /// Drops reservations whose deadline has passed.
    pub fn expire(&self, now: Instant) {
        self.change(|state| state.expire(now));
    }

    /// Ended reservations, counted by outcome.
    pub fn outcomes(&self) -> Outcomes {
        self.state().outcomes
    }

    /// UIDs of pods with a reservation, with the node.
    pub fn reserved(&self) -> Vec<(Arc<str>, String)> {
        self.state().reservations().map(|(uid, reservation)| (uid, reservation.planned.node.clone())).collect()
    }

    /// Demand of a pod that isn't on a node yet.
    pub fn demand(&self, uid: &str) -> Option<Arc<Demand>> {
        self.state().demand(uid).cloned()
    }

    /// Plans the pod on a node and reserves what it takes until the node's ledger shows it. A second call answers the same, and
    /// gives the binding its time anew.
    pub fn reserve(&self, demand: &Arc<Demand>, name: &str, now: Instant) -> Result<Planned, NotReserved> {
        self.state().reserve_for_binding(demand, name, now)
    }

    /// Marks a reservation as bound: the API server has accepted the Binding.
    pub fn committed(&self, uid: &str, now: Instant) {
        self.state().committed(uid, now);
    }

    /// A step couldn't be written: its pod is left alone for a while.
    pub fn refused(&self, step: &Step, now: Instant) {
        self.change(|state| match step {
            Step::Place { demand, .. } => state.refused(&demand.uid, Some(Source::Planned), now),
            Step::Evict { demand, .. } => state.refused(&demand.uid, Some(Source::Nomination), now),
            Step::LetGo { uid, .. } => state.refused(uid, None, now),
            Step::Withdraw { demand } => state.refused_to_withdraw(&demand.uid, now),
        });
    }

    /// The status of a pod says no longer that GPUs are reserved for it.
    pub fn withdrawn(&self, uid: &str, now: Instant) {
        self.state().withdrawn(uid, now);
    }

    /// Drops a reservation whose binding failed, unless the pod is bound after all.
    pub fn failed(&self, uid: &str) {
        self.change(|state| state.failed(uid));
    }

    fn change(&self, change: impl FnOnce(&mut ClusterState) -> Touched) {
        let mut state = self.state();
        let touched = change(&mut state);
        state.publish(touched);
    }

    /// The state, locked.
    pub(crate) fn state(&self) -> MutexGuard<'_, ClusterState> {
        unpoisoned(self.state.lock())
    }

    /// Has `wake` called at every change by which [`plan`](Self::plan) may find something to do.
    pub fn wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.state().waker = Some(Waker::new(wake));
    }
}

#[cfg(test)]
mod tests;
