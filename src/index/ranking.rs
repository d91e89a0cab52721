//! Ranking of nodes.

mod fragmentation;
mod scores;

use crate::fit::SearchCache;

pub(crate) use fragmentation::FragmentationScorer;
pub use scores::{BEST_SCORE, ranked, shortlist};

/// Scores that all snapshots of one index share, behind one lock.
#[derive(Debug, Default)]
pub(crate) struct CachedScores {
    /// Scores for pods whose plans take a search.
    pub(crate) searches: SearchCache,
    /// Scores by the expected requests.
    pub(crate) scorer: FragmentationScorer,
}
