//! One pod on one node: whether it fits, how well, and why not.

mod query;
mod reasons;
mod score_cache;
mod search;
mod victims;

pub use query::Query;
pub(crate) use reasons::{ReasonSummaries, WhyNot, healed};
pub(crate) use score_cache::{ScoreCache, Scores};
pub(crate) use search::{Rating, SearchCache, Until};
