//! Ranking of nodes.

mod fragmentation;
mod scores;

use std::sync::Mutex;

use crate::fit::SearchCache;

pub(crate) use fragmentation::FragmentationScorer;
pub use scores::{BEST_SCORE, ranked, shortlist};

/// Scores that all snapshots of one index share. The locks are never held together.
#[derive(Debug, Default)]
pub(crate) struct ScoreCaches {
    pub(crate) searches: Mutex<SearchCache>,
    pub(crate) scorer: Mutex<FragmentationScorer>,
}
