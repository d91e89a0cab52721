//! What every node can hold: one small record a card, fed by watches, read without waiting.
//!
//! ```text
//! GpuNode ──report──▶ state ──node──▶ table ──view──▶ query ──▶ who fits, and how well
//! Pod ─────demand────▶  ▲ reservation, settle                └─▶ board, for pods that take a search
//! ```
//!
//! The state are behind one lock for whoever changes them; readers take a view of the table, which never changes and which
//! they hold without a lock. No API object is kept.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use divvy_api::annotation::Planned;
use divvy_api::gpunode::GpuNode;
use divvy_placement::{Grounds, Mix, NoPlan, NodeScore, plan};

use crate::demand::{Demand, Policies, SchedulingConfig};
use crate::fit::{Query, Rating, ReasonSummaries, SearchCache, Until};
use crate::pod::PodView;
use crate::ranking::FragmentationScorer;
use crate::snapshot::{Node, NodeRef, Table, Unschedulable, View};
use crate::state::learned::Learned;
use crate::state::{ClusterState, Outcome, Outcomes, Reservation, ReservationTimeouts, Source, Touched, Unusable};
use crate::unpoisoned;

/// Shared by all who ask and all who report.
#[derive(Debug)]
pub struct Index {
    /// Locked before the table, never after.
    state: Mutex<ClusterState>,
    table: RwLock<Table>,
    pub(crate) searches: Mutex<SearchCache>,
    /// Locked by itself.
    pub(crate) scorer: Mutex<FragmentationScorer>,
    config: Arc<SchedulingConfig>,
    terms: ReservationTimeouts,
}

/// Most nodes of one answer whose reasons are told card by card. Among more, nearly each would have one of its own, and
/// an event of kube-scheduler ends after 1 024 characters.
const DETAILED: usize = 32;

/// Nodes that are asked in advance while a scheduler may wait for the lock, …
const ASKED_AT_ONCE: usize = 64;
/// … and those that are looked at further.
const LOOKED_AT_ONCE: usize = 2;

/// Nodes that were asked for, and what they answered.
#[derive(Debug, Default)]
pub struct Ranking {
    /// Where the pod fits, in the order of the names.
    pub fitting: Vec<(NodeRef, NodeScore)>,
    /// Where it doesn't, as far as that was found out; all such nodes if it fits nowhere.
    pub failing: Vec<NodeRef>,
    /// Positions of names that aren't known; a name that comes twice may be there twice.
    pub unknown: Vec<usize>,
}

/// Why a pod doesn't fit on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the names.
    pub name: usize,
    /// Card by card, or in a few words where many nodes are asked.
    pub reason: Arc<str>,
    /// It would fit if the pods of lower priority were gone.
    pub by_eviction: bool,
}

/// Why a pod gets no reservation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReserved {
    /// Nothing was heard of the node.
    #[error("node {0} has no GpuNode: divvy-node doesn't run there, or hasn't reported yet")]
    UnknownNode(String),
    /// The node takes no such pods.
    #[error("node {node}: {reason}")]
    Refused {
        /// The node.
        node: String,
        /// Its words.
        reason: Arc<str>,
    },
    /// The pod is bound already.
    #[error("the pod is bound to node {0} already")]
    Bound(String),
    /// The pod has been given cards already.
    #[error("the pod has been given cards already")]
    Confirmed,
    /// No cards.
    #[error("node {node}: {source}")]
    NoPlan {
        /// The node.
        node: String,
        /// What placement says.
        source: NoPlan,
    },
}

// === impl Index ===

impl Index {
    /// An index that knows nothing.
    pub fn new(config: SchedulingConfig, terms: ReservationTimeouts) -> Self {
        let config = Arc::new(config);
        let state = Mutex::new(ClusterState::new(Arc::clone(&config), terms));
        Self { state, table: RwLock::default(), searches: Mutex::default(), scorer: Mutex::default(), config, terms }
    }

    /// How pods are read and compared.
    pub fn config(&self) -> &SchedulingConfig {
        &self.config
    }

    /// A node's report was added or changed.
    pub fn apply_gpu_node(&self, name: &str, node: &GpuNode) {
        self.change(|state| state.report(name, Ok(node)));
    }

    /// A node's report was added or changed and can't be decoded. The node takes no pods until it can.
    pub fn apply_unreadable(&self, name: &str, problem: &str) {
        self.change(|state| state.report(name, Err(Unusable::Unreadable(problem.to_owned()))));
    }

    /// A node's report was deleted.
    pub fn delete_gpu_node(&self, name: &str) {
        let mut state = unpoisoned(self.state.lock());
        state.forget_node(name);
        unpoisoned(self.table.write()).withdraw(name);
    }

    /// A Node object was added or changed: it keeps pods away or doesn't, and has so many thousandths of CPU cores for
    /// them, as far as it says.
    pub fn apply_node(&self, name: &str, unschedulable: Option<Unschedulable>, allocatable_cpu: Option<u32>) {
        self.change(|state| state.machine(name, allocatable_cpu));
        unpoisoned(self.table.write()).apply_node(name, unschedulable);
    }

    /// A Node object was deleted.
    pub fn delete_node(&self, name: &str) {
        self.change(|state| state.machine(name, None));
        unpoisoned(self.table.write()).delete_node(name);
    }

    /// Forgets Node objects that aren't among these, which are all that there are; from now on a node without one is gone.
    pub fn keep_nodes(&self, names: &HashSet<String>) {
        self.change(|state| state.keep_nodes(names));
        unpoisoned(self.table.write()).keep_nodes(names);
    }

    /// Forgets nodes that aren't among these, which are all that there are.
    pub fn keep_gpu_nodes(&self, names: &HashSet<String>) {
        let known: Vec<Arc<str>> = unpoisoned(self.state.lock()).nodes().cloned().collect();
        known.iter().filter(|name| !names.contains(&***name)).for_each(|name| self.delete_gpu_node(name));
    }

    /// A pod was added or changed. Now and then those that have come change what is [expected](Self::expected).
    pub fn apply_pod(&self, pod: &PodView, now: Instant) {
        let expected = {
            let mut state = unpoisoned(self.state.lock());
            self.publish(&mut state, |state| state.pod(pod, now));
            state.expected.take()
        };
        if let Some(mix) = expected {
            self.expect(mix);
        }
    }

    /// From now on a list of pods is read beside the watch. Pods that the watch ends meanwhile stay ended.
    pub fn begin_list(&self) {
        unpoisoned(self.state.lock()).read_list(true);
    }

    /// That list shows this pod.
    pub fn apply_listed(&self, pod: &PodView, now: Instant) {
        self.change(|state| state.listed_pod(pod, now));
    }

    /// The list is read, or is given up.
    pub fn end_list(&self) {
        unpoisoned(self.state.lock()).read_list(false);
    }

    /// A pod was deleted.
    pub fn delete_pod(&self, uid: &str) {
        self.change(|state| state.end(uid, Some(Outcome::Ended)));
    }

    /// `least-fragmentation` keeps room for these requests from now on.
    pub fn expect(&self, mix: Mix) {
        unpoisoned(self.scorer.lock()).expect(mix.into());
    }

    /// Asks nodes what they are worth to pods as have come before, where they have changed or other requests are expected
    /// since, so that the scheduler needn't wait for it. It takes up to a microsecond for each node and kind of pod; others
    /// are let through on the way.
    pub fn ask_in_advance(&self) {
        let view = self.view();
        let samples = unpoisoned(self.scorer.lock()).samples(&view);
        if samples.is_empty() {
            return;
        }
        let nodes: Vec<NodeRef> = view.all().collect();
        for sample in samples {
            let policies = sample.policies(&self.config);
            let query = Query::new(&sample, &policies);
            for some in nodes.chunks(ASKED_AT_ONCE) {
                unpoisoned(self.scorer.lock()).ask(&query, &view, some);
            }
            let promising = unpoisoned(self.scorer.lock()).promising(&query, &nodes);
            for some in promising.chunks(LOOKED_AT_ONCE) {
                unpoisoned(self.scorer.lock()).look_further(&query, &view, some);
            }
        }
    }

    /// What was learned from the pods that have come; `None` as long as they are few.
    pub fn learned(&self) -> Option<Learned> {
        unpoisoned(self.state.lock()).distribution.learned()
    }

    /// Goes on from what somebody else has learned.
    pub fn restore(&self, learned: Learned) {
        unpoisoned(self.state.lock()).distribution.restore(&learned);
        self.expect(Mix { requests: learned.requests });
    }

    /// What is kept in the cluster has this revision now. It may be behind what has been learned here.
    pub fn kept(&self, revision: u64) {
        unpoisoned(self.state.lock()).distribution.revision = revision;
    }

    /// What is expected.
    pub fn expected(&self) -> Arc<Mix> {
        Arc::clone(unpoisoned(self.scorer.lock()).mix())
    }

    /// The revision of what is kept in the cluster, and how many pods were counted.
    pub fn learned_from(&self) -> (u64, u64) {
        let distribution = &unpoisoned(self.state.lock()).distribution;
        (distribution.revision, distribution.pods())
    }

    /// Pods that are known and haven't ended, by UID.
    pub fn pods(&self) -> HashSet<Arc<str>> {
        unpoisoned(self.state.lock()).pods().cloned().collect()
    }

    /// Pods that wait for a node.
    pub fn waiting(&self) -> Vec<Arc<Demand>> {
        unpoisoned(self.state.lock()).waiting().cloned().collect()
    }

    /// Gives up reservations of which nothing was heard in time.
    pub fn expire(&self, now: Instant) {
        self.change(|state| state.expire(now));
    }

    /// How reservations came out.
    pub fn outcomes(&self) -> Outcomes {
        unpoisoned(self.state.lock()).outcomes
    }

    /// Pods with a reservation, by UID, with their node.
    pub fn reserved(&self) -> Vec<(Arc<str>, String)> {
        unpoisoned(self.state.lock())
            .reservations()
            .map(|(uid, reservation)| (uid, reservation.planned.node.clone()))
            .collect()
    }

    /// What a pod asks for that isn't on a node yet.
    pub fn demand(&self, uid: &str) -> Option<Arc<Demand>> {
        unpoisoned(self.state.lock()).demand(uid).cloned()
    }

    /// The node, as it stands.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        let view = self.view();
        view.node(view.place(name)?).cloned()
    }

    /// All nodes, as they stand at one moment.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.view().nodes().cloned().collect()
    }

    /// Where a pod fits among nodes that are asked for by name, and how well. Each node comes once. Where not `all` are
    /// wanted, nodes whose plans are worse than others' may be left out.
    pub fn rank(&self, query: &Query<'_>, names: &[&str], all: bool) -> Ranking {
        let mut ranking = Ranking::default();
        let view = self.view();
        let nodes = view.look_up(names, |name| ranking.unknown.push(name));
        let own = self.reserved_place(query, &view);
        let by_fragmentation = query.looks_ahead(&self.expected());
        let score = |nodes: &[NodeRef]| unpoisoned(self.scorer.lock()).rank(query, &view, (nodes, all), own);
        if by_fragmentation && !query.takes_a_search() {
            ranking.fitting = score(&nodes);
            if ranking.fitting.is_empty() {
                ranking.failing = nodes;
            }
            return ranking;
        }
        let own_rating = own.and_then(|place| Some(query.rate_without_itself(view.node(place)?)));
        let own_rating = own_rating.map(|score| score.map_or(Rating::Not, Rating::Is));
        let own_rating = |node: &NodeRef| own_rating.filter(|_| own == Some(node.place));
        if query.is_slow() {
            let until = if all { Until::AllAreFound } else { Until::SomeAreFound };
            SearchCache::with(&self.searches, query, |scores| {
                scores.ask(query, &view, &nodes, usize::MAX);
                scores.search(query, &view, &nodes, until);
                ranking.sort(nodes, |node, _| own_rating(node).unwrap_or_else(|| scores.rating(node)));
            });
        } else {
            ranking.sort(nodes, |node, best| {
                let quickly = || query.rate_quickly(&view, node.place, best.filter(|_| !all));
                own_rating(node).unwrap_or_else(|| quickly().map_or(Rating::Not, Rating::Is))
            });
            if !all && !ranking.fitting.is_empty() {
                ranking.failing.clear(); // some are only worse
            }
        }
        if by_fragmentation {
            let fitting: Vec<NodeRef> = ranking.fitting.iter().map(|(node, _)| *node).collect();
            ranking.fitting = score(&fitting);
        }
        ranking
    }

    /// Place of the node where the pod has a reservation.
    fn reserved_place(&self, query: &Query<'_>, view: &View) -> Option<u32> {
        let state = unpoisoned(self.state.lock());
        view.place(&state.reservation_of(&query.demand.uid)?.planned.node)
    }

    /// What these nodes, where the pod fits, are worth by what is expected; `None` if nothing is, or the policy doesn't
    /// look ahead. It is worked out anew: who explains doesn't keep the scheduler waiting.
    pub(crate) fn foresee(
        &self,
        query: &Query<'_>,
        view: &View,
        fitting: &[NodeRef],
    ) -> Option<Vec<(NodeRef, NodeScore)>> {
        let mix = Some(self.expected()).filter(|mix| query.looks_ahead(mix))?;
        let own = self.reserved_place(query, view);
        let mut scorer = FragmentationScorer::default();
        scorer.expect(mix);
        Some(scorer.rank(query, view, (fitting, true), own))
    }

    /// Why the pod doesn't fit on these nodes, which are gone or have been asked.
    pub fn refusals(&self, query: &Query<'_>, asked: &[NodeRef]) -> Vec<Refusal> {
        let view = self.view();
        if asked.len() > DETAILED {
            let mut summaries = ReasonSummaries::default();
            let why_not = |asked: &NodeRef, node: &Node| summaries.why_not(query, &view, (asked.place, node));
            return refused(query, &view, asked, why_not);
        }
        refused(query, &view, asked, |_, node| node.why_not(query))
    }

    /// All nodes, as they stand at one moment.
    pub(crate) fn view(&self) -> View {
        unpoisoned(self.table.read()).view().clone()
    }

    /// Plans the pod on a node and counts the plan as taken until the node shows it. NodeRef again, it answers the same.
    pub fn reserve(&self, demand: &Arc<Demand>, name: &str, now: Instant) -> Result<Planned, NotReserved> {
        let mut state = unpoisoned(self.state.lock());
        if state.is_confirmed(&demand.uid) {
            return Err(NotReserved::Confirmed);
        }
        match state.reservation_of(&demand.uid) {
            Some(reservation) if reservation.is_announced() && reservation.planned.node == name => {
                return Ok(reservation.planned.clone());
            }
            Some(reservation) if reservation.is_bound() => {
                return Err(NotReserved::Bound(reservation.planned.node.clone()));
            }
            Some(_) => self.publish(&mut state, |state| state.failed(&demand.uid)),
            None => {}
        }
        let node = self.node(name).ok_or_else(|| NotReserved::UnknownNode(name.to_owned()))?;
        if let Some(reason) = node.refusal(demand) {
            return Err(NotReserved::Refused { node: name.to_owned(), reason });
        }
        let Policies { cards: policy, .. } = demand.policies(&self.config);
        let plan = plan(&node.cards, &node.links, &demand.request(), &policy)
            .map_err(|source| NotReserved::NoPlan { node: name.to_owned(), source })?;
        let (deadline, on) = (now + self.terms.bound_within, (&*node.cards, &plan));
        let reservation = Reservation::new(Source::Made, Arc::clone(demand), name, on, deadline);
        let planned = reservation.planned.clone();
        self.publish(&mut state, |state| state.reserve(&demand.uid, reservation));
        Ok(planned)
    }

    /// The API server took the binding of a reservation.
    pub fn committed(&self, uid: &str, now: Instant) {
        unpoisoned(self.state.lock()).committed(uid, now);
    }

    /// It didn't, and the pod isn't bound: the reservation is void.
    pub fn failed(&self, uid: &str) {
        self.change(|state| state.failed(uid));
    }

    fn change(&self, change: impl FnOnce(&mut ClusterState) -> Touched) {
        let mut state = unpoisoned(self.state.lock());
        self.publish(&mut state, change);
    }

    /// Changes the state and publishes what changed, before anybody else can change them.
    fn publish(&self, state: &mut ClusterState, change: impl FnOnce(&mut ClusterState) -> Touched) {
        let touched: BTreeSet<Arc<str>> = change(state);
        let nodes = touched.iter().filter_map(|name| state.node(name)).map(|node| {
            let cards = if node.closed.is_none() { &*node.cards } else { &[] };
            let grounds = Grounds::of(cards, &node.links);
            (node, grounds)
        });
        let nodes: Vec<(Node, Grounds)> = nodes.collect();
        if nodes.is_empty() {
            return;
        }
        let mut table = unpoisoned(self.table.write());
        table.know(state.hardware());
        for (node, grounds) in nodes {
            table.publish(node, grounds);
        }
    }
}

// === impl Ranking ===

impl Ranking {
    /// Takes over what each node is worth, which is asked with the best so far.
    fn sort(&mut self, asked: Vec<NodeRef>, mut rating: impl FnMut(&NodeRef, Option<&NodeScore>) -> Rating) {
        let mut best = None;
        for asked in asked {
            match rating(&asked, best.as_ref()) {
                Rating::Is(score) => {
                    best = best.max(Some(score));
                    self.fitting.push((asked, score));
                }
                Rating::Not => self.failing.push(asked),
                Rating::Unknown | Rating::AtBest(_) => {}
            }
        }
    }
}

/// Nodes that don't take the pod, each with what it says when it is asked.
fn refused(
    query: &Query<'_>,
    view: &View,
    asked: &[NodeRef],
    mut why_not: impl FnMut(&NodeRef, &Node) -> Option<Arc<str>>,
) -> Vec<Refusal> {
    let refusal = |asked: &NodeRef| {
        let node = view.node(asked.place)?;
        // What has changed since it was asked fails for now.
        let reason = why_not(asked, node).unwrap_or_else(|| "cards have just become free".into());
        Some(Refusal { name: asked.name, reason, by_eviction: node.may_be_cleared_for(query) })
    };
    asked.iter().filter_map(refusal).collect()
}

#[cfg(test)]
mod tests;
