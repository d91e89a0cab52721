//! Index: free and allocated capacity of every node's GPUs, filled by watches and read without waiting.
//!
//! ```text
//! GpuNode ──report──▶ state ──node──▶ table ──view──▶ query ──▶ which nodes fit, and how well
//! Pod ─────demand────▶  ▲ reserve, confirm                └─▶ score cache
//! ```
//!
//! The state is behind one lock for those that change it; readers take a view of the table, which never changes and which
//! they hold without a lock. No API object is kept.

mod cliques;
mod gangs;
mod planning;
mod preemption;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use divvy_api::annotation::Planned;
use divvy_api::gpunode::GpuNodeReport;
use divvy_api::gpuquota::GpuQuotaSpec;
use divvy_placement::{ExpectedRequests, NodeScore};

use crate::demand::{Demand, Exceeded, SchedulingConfig};
use crate::fit::{Query, Rating, ReasonSummaries, SearchCache, Until};
use crate::pod::PodView;
use crate::ranking::FragmentationScorer;
use crate::snapshot::{Node, NodeObject, NodeRef, View};
use crate::state::{ClusterState, NotReserved, Outcome, Outcomes, QuotaUse, Source, Touched, Waker};
use crate::unpoisoned;

pub use planning::Step;
pub use preemption::Victim;

/// State of the cluster's GPUs, shared by extender, reviews and watches.
#[derive(Debug)]
pub struct Index {
    state: Mutex<ClusterState>,
    pub(crate) searches: Mutex<SearchCache>,
    /// Lock that is held together with no other.
    pub(crate) scorer: Mutex<FragmentationScorer>,
    config: Arc<SchedulingConfig>,
}

/// Most nodes of one answer whose reasons give figures. Among more, nearly each would have a reason of its own, and an event
/// of kube-scheduler ends after 1 024 characters.
const DETAILED: usize = 32;

/// Nodes that are scored in advance in one go, while a call of the scheduler may wait for the lock.
const ASKED_AT_ONCE: usize = 64;
/// Nodes whose allocatable capacity is computed in advance in one go.
const LOOKED_AT_ONCE: usize = 2;

/// Longest search for a node whose plan fits, in one call: the scheduler looks at no other pod meanwhile. What was found out of
/// nodes is kept for the next call.
const SEARCH: Duration = Duration::from_millis(250);

/// Nodes by whether a pod fits there.
#[derive(Debug, Default)]
pub struct Ranking {
    /// Where the pod fits, in the order of the names.
    pub fitting: Vec<(NodeRef, NodeScore)>,
    /// Where the pod doesn't fit, as far as that was found out; all such nodes if it fits nowhere.
    pub failing: Vec<NodeRef>,
    /// Positions of names that aren't known; a name that comes twice may be there twice.
    pub unknown: Vec<usize>,
    /// Nodes that weren't looked at in time: one of them may fit, if none is known to. Another call goes on with them.
    pub unrated: usize,
}

/// Why a pod doesn't fit on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Position of the node among the names.
    pub name: usize,
    /// Reason with counts and amounts, or without where there are many nodes.
    pub reason: Arc<str>,
    /// Whether it would fit if the pods of lower priority were gone.
    pub by_eviction: bool,
}

// === impl Index ===

impl Index {
    /// Creates an index without nodes and pods.
    pub fn new(config: SchedulingConfig) -> Self {
        let config = Arc::new(config);
        let state = Mutex::new(ClusterState::new(Arc::clone(&config)));
        Self { state, searches: Mutex::default(), scorer: Mutex::default(), config }
    }

    /// Configuration by which pods are read and compared.
    pub fn config(&self) -> &SchedulingConfig {
        &self.config
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

    /// Models of which the pod may have no GPUs now, by its namespace's `GpuQuota`s; usually none.
    pub fn exceeded(&self, demand: &Demand) -> Vec<Exceeded> {
        self.state().exceeded(demand)
    }

    /// Why the pod can have no GPU before others of its namespace end, whichever models nodes may come to have.
    pub(crate) fn used_up(&self, demand: &Demand) -> Option<Arc<str>> {
        self.state().quotas.used_up(demand)
    }

    /// Applies a pod that was added or changed. Now and then the pods counted so far change what is
    /// [expected](Self::expected).
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

    /// Scores nodes that have changed for the shapes of pods that have come lately, so that the scheduler needn't wait for
    /// it. Takes up to a microsecond for each node and shape; the lock is released between a few nodes and the next.
    pub fn ask_in_advance(&self) {
        let view = self.view();
        let samples = unpoisoned(self.scorer.lock()).samples(&view);
        if samples.is_empty() {
            return;
        }
        let nodes: Vec<NodeRef> = view.all().collect();
        for sample in samples {
            let query = Query::new(&sample, &self.config);
            for some in nodes.chunks(ASKED_AT_ONCE) {
                unpoisoned(self.scorer.lock()).ask(&query, &view, some);
            }
            let best = unpoisoned(self.scorer.lock()).best_scored(&query, &nodes);
            for some in best.chunks(LOOKED_AT_ONCE) {
                unpoisoned(self.scorer.lock()).look_further(&query, &view, some);
            }
        }
    }

    /// Number of soft taints that a node is to have, so that kube-scheduler puts pods without GPUs where they take no CPU that
    /// expected requests will need. `None`: no `GpuNode` of this name.
    pub fn soft_taints(&self, name: &str) -> Option<u32> {
        self.soft_taints_in(&self.view(), name)
    }

    fn soft_taints_in(&self, view: &View, name: &str) -> Option<u32> {
        let node = view.node(view.place(name)?)?;
        Some(unpoisoned(self.scorer.lock()).soft_taints(view, node))
    }

    /// Nodes that carry other soft taints than they are to have, with the number that they are to have. Nodes that somebody
    /// else's taints keep such pods off are to have none; without `enabled`, no node is.
    pub fn soft_taints_due(&self, enabled: bool) -> Vec<(String, u32)> {
        let nodes = self.state().node_objects().clone();
        let view = self.view();
        let due = |(name, node): (String, Arc<NodeObject>)| {
            let wanted = if enabled && !node.is_tainted() { self.soft_taints_in(&view, &name).unwrap_or(0) } else { 0 };
            (node.soft_taints() != [wanted > 0, wanted > 1]).then_some((name, wanted))
        };
        nodes.into_iter().filter_map(due).collect()
    }

    /// Requests that are expected.
    pub fn expected(&self) -> Arc<ExpectedRequests> {
        Arc::clone(self.state().view().expected())
    }

    /// Pods whose requests have been counted.
    pub fn counted_pods(&self) -> u64 {
        self.state().distribution.pods()
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

    /// The node as it is now.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.state().view().find(name).cloned()
    }

    /// All nodes at one moment.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.state().view().nodes().cloned().collect()
    }

    /// Ranks the nodes of these names by how well the pod fits there. Each node comes once. Without `all`, nodes whose plans
    /// are worse than others' may be left out.
    pub fn rank(&self, query: &Query<'_>, names: &[&str], all: bool) -> Ranking {
        let view = self.view();
        let mut unknown = Vec::new();
        let nodes = view.look_up(names, |name| unknown.push(name));
        let own = self.reserved_place(query, &view);
        Ranking { unknown, ..self.rank_near_first(query, &view, (nodes, all), own) }
    }

    /// Ranks nodes, those near other pods of the pod's group first.
    fn rank_near_first(
        &self,
        query: &Query<'_>,
        view: &View,
        (nodes, all): (Vec<NodeRef>, bool),
        own: Option<u32>,
    ) -> Ranking {
        let (near, others) = self.near(query, view, nodes);
        let mut ranking = self.rank_nodes(query, view, (others, all), own);
        if !near.is_empty() {
            ranking.add_near(self.rank_nodes(query, view, (near, all), own));
        }
        ranking
    }

    fn rank_nodes(
        &self,
        query: &Query<'_>,
        view: &View,
        (nodes, all): (Vec<NodeRef>, bool),
        own: Option<u32>,
    ) -> Ranking {
        let mut ranking = Ranking::default();
        let by_fragmentation = query.looks_ahead(view.expected());
        let by_cost = |nodes: &[NodeRef]| unpoisoned(self.scorer.lock()).rank(query, view, (nodes, all), own);
        if by_fragmentation && !query.takes_a_search() {
            ranking.fitting = by_cost(&nodes);
            if ranking.fitting.is_empty() {
                ranking.failing = nodes;
            }
            return ranking;
        }
        let own_rating = own.and_then(|place| Some((place, query.rate_without_itself(view.node(place)?).into())));
        if query.is_slow() {
            self.rank_by_search(query, view, (nodes, all), own_rating, &mut ranking);
        } else {
            rank_by_table(query, view, (nodes, all), own_rating, &mut ranking);
        }
        if by_fragmentation {
            let fitting: Vec<NodeRef> = ranking.fitting.iter().map(|(node, _)| *node).collect();
            ranking.fitting = by_cost(&fitting);
        }
        ranking
    }

    /// Ranks nodes for a pod whose best plan takes a search, by scores cached for its shape.
    fn rank_by_search(
        &self,
        query: &Query<'_>,
        view: &View,
        (nodes, all): (Vec<NodeRef>, bool),
        own: Option<(u32, Rating)>,
        ranking: &mut Ranking,
    ) {
        let deadline = (!all).then(|| Instant::now() + SEARCH);
        let until = deadline.map_or(Until::AllAreFound, Until::Late);
        SearchCache::with(&self.searches, query, |scores| {
            scores.ask(query, view, &nodes, usize::MAX, deadline);
            scores.search(query, view, &nodes, until);
            ranking.sort(nodes, own, |node, _| scores.rating(node));
        });
    }

    /// Place of the node where the pod has a reservation.
    fn reserved_place(&self, query: &Query<'_>, view: &View) -> Option<u32> {
        let state = self.state();
        view.place(&state.reservation_of(&query.demand.uid)?.planned.node)
    }

    /// Scores nodes where the pod fits by the expected requests; `None` if there are none, or the policy doesn't use them.
    /// Nothing cached is used: an explanation doesn't keep the scheduler waiting for the lock.
    pub(crate) fn foresee(
        &self,
        query: &Query<'_>,
        view: &View,
        fitting: &[NodeRef],
    ) -> Option<Vec<(NodeRef, NodeScore)>> {
        if !query.looks_ahead(view.expected()) {
            return None;
        }
        let own = self.reserved_place(query, view);
        Some(FragmentationScorer::default().rank(query, view, (fitting, true), own))
    }

    /// Why the pod doesn't fit on these nodes, as [`rank`](Self::rank) found.
    ///
    /// The query is apart from quotas; those that are exceeded are reasons of their own.
    pub fn refusals(&self, query: &Query<'_>, exceeded: &[Exceeded], asked: &[NodeRef]) -> Vec<Refusal> {
        let view = self.view();
        let mut summaries = ReasonSummaries::default();
        let are_many = asked.len() > DETAILED;
        let mut by_gpus = |asked: &NodeRef, node: &Node| {
            if are_many { summaries.why_not(query, &view, (asked.place, node)) } else { node.why_not(query) }
        };
        let refusal = |asked: &NodeRef| {
            let node = view.node(asked.place)?;
            if let Some(reason) = node.why_over_quota(query, exceeded) {
                return Some(Refusal { name: asked.name, reason, by_eviction: false });
            }
            // What has changed since it was asked fails for now.
            let reason = by_gpus(asked, node).unwrap_or_else(|| "GPUs have just become free".into());
            Some(Refusal { name: asked.name, reason, by_eviction: node.may_be_cleared_for(query) })
        };
        asked.iter().filter_map(refusal).collect()
    }

    /// All nodes at one moment.
    pub(crate) fn view(&self) -> View {
        self.state().view().clone()
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

// === impl Ranking ===

impl Ranking {
    /// Adds nodes that are near others of the pod's group.
    fn add_near(&mut self, near: Self) {
        self.fitting.extend(near.fitting.into_iter().map(|(node, score)| (node, score.near())));
        self.fitting.sort_unstable_by_key(|(node, _)| node.name);
        self.unrated += near.unrated;
        self.failing.extend(near.failing);
        self.failing.sort_unstable_by_key(|node| node.name);
    }

    /// Sorts nodes by whether the pod fits: by `own` at that place, elsewhere by `rating`, which is called with the best score
    /// so far.
    fn sort(
        &mut self,
        nodes: Vec<NodeRef>,
        own: Option<(u32, Rating)>,
        rating: impl Fn(&NodeRef, Option<&NodeScore>) -> Rating,
    ) {
        let mut best = None;
        for asked in nodes {
            let own = own.filter(|(place, _)| *place == asked.place).map(|(_, rating)| rating);
            match own.unwrap_or_else(|| rating(&asked, best.as_ref())) {
                Rating::Is(score) => {
                    best = best.max(Some(score));
                    self.fitting.push((asked, score));
                }
                Rating::Not => self.failing.push(asked),
                Rating::Unknown | Rating::AtBest(_) => self.unrated += 1,
            }
        }
    }
}

/// Ranks nodes for a pod whose best plan a few numbers of the node decide.
fn rank_by_table(
    query: &Query<'_>,
    view: &View,
    (nodes, all): (Vec<NodeRef>, bool),
    own: Option<(u32, Rating)>,
    ranking: &mut Ranking,
) {
    ranking.sort(nodes, own, |node, best| query.rate_quickly(view, node.place, best.filter(|_| !all)).into());
    if !all && !ranking.fitting.is_empty() {
        ranking.failing.clear(); // some are only worse
    }
}

#[cfg(test)]
mod tests;
