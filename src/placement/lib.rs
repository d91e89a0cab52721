//! Pure placement: cards, requests and a policy in; a plan for the whole pod, or a reason per card, out.
//!
//! No I/O, no clock, no hidden randomness: the daemon, the extender and the simulator get the same answer to the same question.
//!
//! ```text
//! pod, allocated ──reuse──▶ steps ─┐
//! state ──eligible──▶ barred ────┼─problem─▶ search ──▶ Plan | NoPlan     verify: is this plan still good?
//! policy ─────────▶ criteria ────┘  (fit: the worst draw of each card)    score: which node's plan is better?
//! ```
//!
//! A caller that compares many nodes asks [`nodes::card_table`] first: from a few numbers a card it gives most pods the same answer.

mod card_free;
mod eligible;
mod fit;
pub mod node_state;
pub mod nodes;
mod planner;
pub mod pod;
pub mod policy;
mod problem;
pub mod reason;
mod refusal;
mod reuse;
mod search;
pub mod taken;
pub mod verify;

pub use card_free::capacity;
#[cfg(any(test, feature = "count-matchings"))]
pub use eligible::matchings;
pub use eligible::{is_allowed, is_model_pattern, matches_model};
pub use node_state::{Held, NodeState, Taken};
pub use nodes::card_table::{AnyPod, CardRow, CardShares, CardTable, OneCard, OneRequest};
pub use nodes::expected::{Expected, ExpectedRequests, Kind};
pub use nodes::forecast::{Allocatable, Forecast, SlotWeights};
pub use nodes::free_capacity::{FreeCapacity, Hardware};
pub use nodes::score::{NodeScore, score};
pub use planner::plan;
pub use pod::{ContainerPlan, NoPlan, Plan, PodRequest};
pub use policy::Policy;
pub use problem::sharing;
pub use reason::{Lacking, Reason, summary};
pub use taken::taken;
pub use verify::{Misfit, verify};

#[cfg(test)]
mod tests;
