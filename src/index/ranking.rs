//! Ranking of nodes.

mod fragmentation;
mod scores;

pub(crate) use fragmentation::FragmentationScorer;
pub use scores::{BEST_SCORE, ranked, shortlist};
