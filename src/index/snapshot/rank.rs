//! Nodes ranked for one pod: one way for all pods, whichever policy compares nodes.

use std::time::{Duration, Instant};

use divvy_placement::NodeScore;

use super::Snapshot;
use crate::fit::Query;
use crate::nodes::NodeRef;
use crate::ranking::{Budget, CachedScores, Key, Rating, Scores};

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

/// Longest search for a node whose plan fits, in one call: the scheduler looks at no other pod meanwhile. What was found out of
/// nodes is kept for the next call.
const SEARCH: Duration = Duration::from_millis(250);

// === impl Snapshot ===

impl Snapshot {
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

    /// Finds where there is a plan, and compares these nodes by what they lose, if a policy asks for that. What a node loses
    /// says whether there is a plan, too, unless that takes a search.
    fn rank_nodes(&self, query: &Query<'_>, nodes: Vec<NodeRef>, all: bool) -> Ranking {
        if !query.looks_ahead(self.view.expected()) {
            return self.rank_by_plans(query, nodes, all);
        }
        let mut ranking = Ranking::default();
        let mut candidates = nodes;
        if query.takes_a_search() {
            ranking = self.rank_by_plans(query, candidates, all);
            candidates = ranking.fitting.iter().map(|(node, _)| *node).collect();
        }
        ranking.fitting = self.scores().rank(query, &self.view, (&candidates, all), self.pod.reserved_at);
        if ranking.fitting.is_empty() {
            ranking.failing.extend(candidates);
        }
        ranking
    }

    /// Ranks nodes by the pod's best plan there. One that takes a search is found as far as the time allows.
    fn rank_by_plans(&self, query: &Query<'_>, nodes: Vec<NodeRef>, all: bool) -> Ranking {
        let view = &self.view;
        let own = self.pod.reserved_at;
        let own = own.and_then(|place| Some((place, query.rate_without_itself(view.node(place)?).into())));
        if query.is_slow() {
            let deadline = (!all).then(|| Instant::now() + SEARCH);
            return self.with_plans(query, |scores| {
                scores.refine(query, view, &nodes, Budget { bounds: usize::MAX, deadline });
                Ranking::new(nodes, own, |node, _| scores.rating(node))
            });
        }
        let mut ranking =
            Ranking::new(nodes, own, |node, best| query.rate_quickly(view, node.place, best.filter(|_| !all)).into());
        if !all && !ranking.fitting.is_empty() {
            ranking.failing.clear(); // some are only worse
        }
        ranking
    }

    /// Changes what is known of plans for pods like this one. It is out of the cache meanwhile, so that no other query waits
    /// for a search.
    pub(crate) fn with_plans<R>(&self, query: &Query<'_>, change: impl FnOnce(&mut Scores<Rating>) -> R) -> R {
        let key = Key::new(query, self.view.expected());
        let mut scores = self.scores().take(key.as_ref());
        let result = change(&mut scores.plans);
        self.scores().put(key, scores);
        result
    }

    /// Scores nodes where the pod fits by the expected requests; `None` if there are none, or the policy doesn't use them.
    /// Nothing cached is used: an explanation doesn't keep the scheduler waiting for the lock.
    pub(crate) fn foresee(&self, query: &Query<'_>, fitting: &[NodeRef]) -> Option<Vec<(NodeRef, NodeScore)>> {
        if !query.looks_ahead(self.view.expected()) {
            return None;
        }
        Some(CachedScores::default().rank(query, &self.view, (fitting, true), self.pod.reserved_at))
    }
}

// === impl Ranking ===

impl Ranking {
    /// Sorts nodes by whether the pod fits: by `own` at that place, elsewhere by `rating`, which is called with the best score
    /// so far.
    fn new(
        nodes: Vec<NodeRef>,
        own: Option<(u32, Rating)>,
        rating: impl Fn(&NodeRef, Option<&NodeScore>) -> Rating,
    ) -> Self {
        // To grow the list would take a tenth of the query.
        let mut ranking = Self { fitting: Vec::with_capacity(nodes.len()), ..Self::default() };
        let mut best = None;
        for asked in nodes {
            let own = own.filter(|(place, _)| *place == asked.place).map(|(_, rating)| rating);
            match own.unwrap_or_else(|| rating(&asked, best.as_ref())) {
                Rating::Is(score) => {
                    best = best.max(Some(score));
                    ranking.fitting.push((asked, score));
                }
                Rating::Not => ranking.failing.push(asked),
                Rating::Unknown | Rating::AtBest(_) => ranking.unrated += 1,
            }
        }
        ranking
    }

    /// Adds nodes that are near others of the pod's group.
    fn add_near(&mut self, near: Self) {
        self.fitting.extend(near.fitting.into_iter().map(|(node, score)| (node, score.near())));
        self.fitting.sort_unstable_by_key(|(node, _)| node.name);
        self.unrated += near.unrated;
        self.failing.extend(near.failing);
        self.failing.sort_unstable_by_key(|node| node.name);
    }
}
