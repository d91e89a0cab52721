//! Snapshot: the nodes at one moment, and what is asked of them. It never changes, so its readers wait for nobody but, where
//! they rank nodes, for the score cache.
//!
//! What isn't the nodes' but the pod's that is asked about (quotas, its own reservation, others of its group) is taken at the
//! same moment, for this one pod.

mod cliques;
mod refusals;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use divvy_placement::{ExpectedRequests, NodeScore};

use crate::demand::{Exceeded, SchedulingConfig};
use crate::fit::{Query, Rating, Scores, SearchCache, Until};
use crate::nodes::{Node, NodeRef, View};
use crate::ranking::{CachedScores, FragmentationScorer};
use crate::unpoisoned;

pub use refusals::Refusal;

/// The cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) config: Arc<SchedulingConfig>,
    pub(crate) view: View,
    pub(crate) scores: Arc<Mutex<CachedScores>>,
    /// Pods whose requests had been counted.
    pub(crate) counted_pods: u64,
    pub(crate) pod: PodContext,
}

/// What is known, beside the nodes, of the pod that a snapshot was taken for; nothing where it was taken for none.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodContext {
    /// Models of which it may have no GPUs now, by its namespace's `GpuQuota`s; usually none.
    pub(crate) exceeded: Vec<Exceeded>,
    /// Why it can have no GPU before others of its namespace end, whichever models nodes may come to have.
    pub(crate) used_up: Option<Arc<str>>,
    /// Place of the node where it has a reservation.
    pub(crate) reserved_at: Option<u32>,
    /// Others of its group, if NVLink reaches several nodes somewhere.
    pub(crate) group: Option<GroupOnNodes>,
    /// What its group waits for as a whole, if it does.
    pub(crate) group_waits: Option<Arc<str>>,
}

/// Where the pods of a group are.
#[derive(Clone, Debug)]
pub(crate) struct GroupOnNodes {
    /// Nodes where others of the group are, or have GPUs reserved.
    pub(crate) placed: Vec<String>,
    /// How many of the group have no node yet, the pod included.
    pub(crate) waiting: usize,
}

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

/// Nodes that are scored in advance in one go, while a call of the scheduler may wait for the lock.
const ASKED_AT_ONCE: usize = 64;
/// Nodes whose allocatable capacity is computed in advance in one go.
const LOOKED_AT_ONCE: usize = 2;

/// Longest search for a node whose plan fits, in one call: the scheduler looks at no other pod meanwhile. What was found out of
/// nodes is kept for the next call.
const SEARCH: Duration = Duration::from_millis(250);

// === impl Snapshot ===

impl Snapshot {
    /// Models of which the pod may have no GPUs now, by its namespace's `GpuQuota`s; usually none.
    pub fn exceeded(&self) -> &[Exceeded] {
        &self.pod.exceeded
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.view.find(name)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.view.nodes()
    }

    /// Requests that are expected.
    pub fn expected(&self) -> &Arc<ExpectedRequests> {
        self.view.expected()
    }

    /// Pods whose requests had been counted.
    pub fn counted_pods(&self) -> u64 {
        self.counted_pods
    }

    /// Number of soft taints that a node is to have, so that kube-scheduler puts pods without GPUs where they take no CPU that
    /// expected requests will need. `None`: no `GpuNode` of this name.
    pub fn soft_taints(&self, name: &str) -> Option<u32> {
        let node = self.node(name)?;
        Some(self.scores().scorer.soft_taints(&self.view, node))
    }

    /// The score cache, for which others wait meanwhile. Nothing that is called with it can lock the state, as no snapshot
    /// knows the index.
    fn scores(&self) -> MutexGuard<'_, CachedScores> {
        unpoisoned(self.scores.lock())
    }

    /// Scores nodes that have changed for the shapes of pods that have come lately, so that the scheduler needn't wait for
    /// it. Takes up to a microsecond for each node and shape; the lock is released between a few nodes and the next.
    pub fn score_in_advance(&self) {
        let view = &self.view;
        let samples = self.scores().scorer.samples(view);
        if samples.is_empty() {
            return;
        }
        let nodes: Vec<NodeRef> = view.all().collect();
        for sample in samples {
            let query = Query::new(&sample, &self.config);
            for some in nodes.chunks(ASKED_AT_ONCE) {
                self.scores().scorer.ask(&query, view, some);
            }
            let best = self.scores().scorer.best_scored(&query, &nodes);
            for some in best.chunks(LOOKED_AT_ONCE) {
                self.scores().scorer.look_further(&query, view, some);
            }
        }
    }

    /// Ranks the nodes of these names by how well the pod fits there. Each node comes once. Without `all`, nodes whose plans
    /// are worse than others' may be left out.
    pub fn rank(&self, query: &Query<'_>, names: &[&str], all: bool) -> Ranking {
        let mut unknown = Vec::new();
        let nodes = self.view.look_up(names, |name| unknown.push(name));
        Ranking { unknown, ..self.rank_near_first(query, nodes, all) }
    }

    /// Ranks nodes, those near other pods of the pod's group first.
    pub(crate) fn rank_near_first(&self, query: &Query<'_>, nodes: Vec<NodeRef>, all: bool) -> Ranking {
        let (near, others) = self.near(query, nodes);
        let mut ranking = self.rank_nodes(query, others, all);
        if !near.is_empty() {
            ranking.add_near(self.rank_nodes(query, near, all));
        }
        ranking
    }

    fn rank_nodes(&self, query: &Query<'_>, nodes: Vec<NodeRef>, all: bool) -> Ranking {
        let view = &self.view;
        let own = self.pod.reserved_at;
        let mut ranking = Ranking::default();
        let by_fragmentation = query.looks_ahead(view.expected());
        let by_cost = |nodes: &[NodeRef]| self.scores().scorer.rank(query, view, (nodes, all), own);
        if by_fragmentation && !query.takes_a_search() {
            ranking.fitting = by_cost(&nodes);
            if ranking.fitting.is_empty() {
                ranking.failing = nodes;
            }
            return ranking;
        }
        let own_rating = own.and_then(|place| Some((place, query.rate_without_itself(view.node(place)?).into())));
        if query.is_slow() {
            self.rank_by_search(query, nodes, all, own_rating, &mut ranking);
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
        nodes: Vec<NodeRef>,
        all: bool,
        own: Option<(u32, Rating)>,
        ranking: &mut Ranking,
    ) {
        let deadline = (!all).then(|| Instant::now() + SEARCH);
        let until = deadline.map_or(Until::AllAreFound, Until::Late);
        self.with_searched(query, |scores| {
            scores.ask(query, &self.view, &nodes, usize::MAX, deadline);
            scores.search(query, &self.view, &nodes, until);
            ranking.sort(nodes, own, |node, _| scores.rating(node));
        });
    }

    /// Changes the scores that were searched for pods like this one. They are out of the cache meanwhile, so that no other query
    /// waits for the search.
    pub(crate) fn with_searched<R>(&self, query: &Query<'_>, change: impl FnOnce(&mut Scores<Rating>) -> R) -> R {
        let key = SearchCache::key(query);
        let known = key.as_ref().and_then(|key| self.scores().searches.take(key));
        let mut scores = known.unwrap_or_default();
        let result = change(&mut scores);
        if let Some(key) = key {
            self.scores().searches.put(key, scores);
        }
        result
    }

    /// Scores nodes where the pod fits by the expected requests; `None` if there are none, or the policy doesn't use them.
    /// Nothing cached is used: an explanation doesn't keep the scheduler waiting for the lock.
    pub(crate) fn foresee(&self, query: &Query<'_>, fitting: &[NodeRef]) -> Option<Vec<(NodeRef, NodeScore)>> {
        if !query.looks_ahead(self.view.expected()) {
            return None;
        }
        Some(FragmentationScorer::default().rank(query, &self.view, (fitting, true), self.pod.reserved_at))
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
