//! One pod on one node: whether it fits, how well, and why not.

mod query;
mod reasons;
mod victims;

pub use query::Query;
pub(crate) use reasons::{ReasonSummaries, WhyNot, healed};
