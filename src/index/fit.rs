//! One pod on one node: whether it fits, how well, and why not.

mod query;
mod reasons;
mod search;

pub use query::Query;
pub(crate) use reasons::{ReasonSummaries, WhyNot};
pub(crate) use search::{Boards, Rating, Until};
