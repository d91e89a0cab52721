//! Pure placement: cards, requests and a policy in; a plan for the whole pod, or a reason per card, out.
//!
//! No I/O, no clock, no hidden randomness: the daemon, the extender and the simulator get the same answer to the same question.
//!
//! ```text
//! pod, allocated ──reuse──▶ steps ─┐
//! cards ──eligible──▶ barred ────┼─problem─▶ search ──▶ Plan | NoPlan     verify: is this plan still good?
//! links, policy ──▶ criteria ────┘  (fit: the worst draw of each card)    score: which node's plan is better?
//! ```
//!
//! A caller that compares many nodes asks [`nodes::card_table`] first: from a few numbers a card it gives most pods the same answer.

pub mod card;
mod card_free;
mod eligible;
mod fit;
pub mod links;
pub mod nodes;
mod planner;
pub mod pod;
pub mod policy;
mod problem;
mod refusal;
mod reuse;
mod search;
pub mod taken;
pub mod verify;

pub use card::{Card, Held, Lacking, Reason, summary};
#[cfg(any(test, feature = "count-matchings"))]
pub use eligible::matchings;
pub use eligible::{is_allowed, is_model_pattern, matches_model};
pub use links::{Link, Links};
pub use nodes::card_table::{AnyPod, CardShares, CardTable, NodeCards, OneCard, OneRequest};
pub use nodes::expected::{Expected, ExpectedRequests, Kind};
pub use nodes::forecast::{Allocatable, Forecast, SlotWeights};
pub use nodes::free_capacity::{FreeCapacity, Hardware};
pub use nodes::score::{NodeScore, score};
pub use planner::plan;
pub use pod::{ContainerPlan, NoPlan, Plan, PodRequest};
pub use policy::Policy;
pub use problem::{host_memory_left, sharing};
pub use taken::{Taken, taken};
pub use verify::{Misfit, verify};

#[cfg(test)]
mod tests;
