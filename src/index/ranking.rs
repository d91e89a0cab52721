//! Ranking of nodes: one score cache for all pods, whose entries are refined as somebody asks and the time allows.

mod fragmentation;
mod score_cache;
mod scores;
mod search;

use std::sync::Arc;

use divvy_placement::NodeScore;

use crate::demand::Demand;
use crate::fit::Query;
use crate::nodes::{NodeRef, View};

use fragmentation::FragmentationScorer;
use score_cache::{ScoreCache, ShapeScores};

pub(crate) use score_cache::{Key, Rating, Scores};
pub use scores::{BEST_SCORE, ranked, shortlist};
pub(crate) use search::Budget;

/// What all snapshots of one index share of their nodes' scores, behind one lock.
#[derive(Debug, Default)]
pub(crate) struct CachedScores {
    cache: ScoreCache,
    pub(crate) scorer: FragmentationScorer,
}

// === impl CachedScores ===

impl CachedScores {
    /// Takes out what is known for a shape of pods, to be put back; of others, and where nothing is kept, that is nothing yet.
    pub(crate) fn take(&mut self, key: Option<&Key>) -> ShapeScores {
        key.and_then(|key| self.cache.take(key)).unwrap_or_default()
    }

    /// Puts it back.
    pub(crate) fn put(&mut self, key: Option<Key>, scores: ShapeScores) {
        if let Some(key) = key {
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
        let key = Key::new(query, view.expected());
        let mut scores = self.take(key.as_ref());
        let ranked = self.scorer.rank(query, view, asked, own, &mut scores);
        self.put(key, scores);
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
}
