//! Ranking of nodes: one score cache for all pods, whose entries are refined as somebody asks and the time allows.

mod fragmentation;
mod score_cache;
mod scores;
mod search;

use std::sync::Arc;

use divvy_placement::NodeScore;

use crate::demand::Demand;
use crate::fit::Query;
use crate::nodes::{Node, NodeRef, View};

use fragmentation::FragmentationScorer;
use score_cache::{Key, ScoreCache, ShapeScores};

pub(crate) use score_cache::{Rating, Scores};
pub use scores::{BEST_SCORE, ranked, shortlist};
pub(crate) use search::Budget;

/// What all snapshots of one index share of their nodes' scores, behind one lock.
#[derive(Debug, Default)]
pub(crate) struct CachedScores {
    cache: ScoreCache,
    scorer: FragmentationScorer,
}

// === impl CachedScores ===

impl CachedScores {
    /// Takes out the scores for pods like this one; of others there are none yet.
    pub(crate) fn take(&mut self, query: &Query<'_>, view: &View) -> ShapeScores {
        let key = Key::new(query, view.expected());
        key.and_then(|key| self.cache.take(&key)).unwrap_or_default()
    }

    /// Puts them back.
    pub(crate) fn put(&mut self, query: &Query<'_>, view: &View, scores: ShapeScores) {
        if let Some(key) = Key::new(query, view.expected()) {
            self.cache.put(key, scores);
        }
    }

    /// Scores nodes where the pod fits by what they lose to it; without `all` only the best of them. `own` is the place where
    /// the pod has a reservation.
    pub(crate) fn rank(
        &mut self,
        query: &Query<'_>,
        view: &View,
        asked: (&[NodeRef], bool),
        own: Option<u32>,
    ) -> Vec<(NodeRef, NodeScore)> {
        let mut scores = self.take(query, view);
        let ranked = self.scorer.rank(query, view, asked, own, &mut scores);
        self.put(query, view, scores);
        ranked
    }

    /// Pods of all shapes that have come lately, if losses for them may be missing.
    pub(crate) fn samples(&mut self, view: &View) -> Vec<Arc<Demand>> {
        let has_samples = self.cache.samples().next().is_some();
        let is_behind = has_samples && self.scorer.falls_behind(view);
        self.cache.samples().filter(|_| is_behind).cloned().collect()
    }

    /// Scores nodes that have changed for pods like this one.
    pub(crate) fn score(&mut self, query: &Query<'_>, view: &View, nodes: &[NodeRef]) {
        if let Some(scores) = Key::new(query, view.expected()).and_then(|key| self.cache.get_mut(&key)) {
            self.scorer.score(query, view, nodes, scores);
        }
    }

    /// The best nodes by what is known of their losses to pods like this one.
    pub(crate) fn best_scored(&mut self, query: &Query<'_>, view: &View, nodes: &[NodeRef]) -> Vec<NodeRef> {
        let scores = Key::new(query, view.expected()).and_then(|key| self.cache.get_mut(&key));
        scores.map_or_else(Vec::new, |scores| self.scorer.best_scored(nodes, scores))
    }

    /// Works out what the best of these nodes are compared by.
    pub(crate) fn look_further(&mut self, query: &Query<'_>, view: &View, nodes: &[NodeRef]) {
        self.scorer.look_further(query, view, nodes);
    }

    /// Number of soft taints that a node is to have.
    pub(crate) fn soft_taints(&mut self, view: &View, node: &Node) -> u32 {
        self.scorer.soft_taints(view, node)
    }

    /// Sums over all nodes, of hardware of which something is free.
    #[cfg(test)]
    pub(crate) fn sums(&mut self) -> String {
        self.scorer.sums()
    }
}
