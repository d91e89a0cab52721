//! Pure placement: cards, requests and a policy in; a plan for the whole pod, or a reason per card, out.
//!
//! No I/O, no clock, no hidden randomness: the daemon, the extender and the simulator get the same answer to the same question.
//!
//! ```text
//! pod, settled ──reuse──▶ steps ─┐
//! cards ──eligible──▶ barred ────┼─case─▶ search ──▶ Plan | NoPlan        verify: is this plan still good?
//! links, policy ──▶ criteria ────┘  (fit: the worst draw of each card)    score: which node's plan is better?
//! ```
//!
//! Whoever asks about many nodes asks [`ground`] first: it answers most pods from a few numbers a card, and the same.

pub mod card;
mod case;
mod eligible;
mod fit;
pub mod forecast;
mod free;
pub mod ground;
pub mod links;
pub mod mix;
pub mod plan;
mod planner;
pub mod policy;
mod refusal;
pub mod remains;
mod reuse;
pub mod score;
mod search;
pub mod taken;
pub mod verify;

pub use card::{Card, Held, Lacking, Reason, summary};
pub use case::takes_whole;
pub use forecast::{Forecast, Prices};
pub use ground::{Claimant, Ground, Grounds, Several, Single, Takes};
pub use links::{Link, Links};
pub use mix::{Expected, Kind, Mix};
pub use plan::{ContainerPlan, NoPlan, Plan, PodRequest};
pub use planner::plan;
pub use policy::Policy;
pub use remains::{Hardware, Remains};
pub use score::{NodeScore, score};
pub use taken::{Taken, taken};
pub use verify::{Misfit, verify};

#[cfg(test)]
mod tests;
