//! What the whole cluster's cards can still hold, by what its nodes report: a prediction, made with the nodes' own
//! placement code. The node is right.
//!
//! The webhook keeps an [`Index`] for as long as it lives and fills it from watches; `kubectl divvy` fills one from lists
//! and asks it once.

mod appraiser;
mod bar;
mod board;
mod books;
mod common;
pub mod demand;
mod expectation;
pub mod explain;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod headline;
mod index;
pub mod learned;
mod learner;
mod node;
mod outcome;
mod outlook;
mod overview;
pub mod pod;
mod promise;
mod question;
mod ranks;
mod report;
mod room;
mod table;
mod tally;

pub use bar::Bar;
pub use board::Asked;
pub use expectation::{Expectation, ExpectedPart};
pub use explain::Explanation;
pub use index::{Index, Ranking, Refusal, Terms, Unpromised};
pub use learned::Learned;
pub use node::{Holder, Node};
pub use outcome::{Outcome, Outcomes};
pub use outlook::Outlook;
pub use overview::{CardOverview, NodeOverview};
pub use question::Question;
pub use ranks::{BEST_SCORE, ranked, shortlist};
pub use report::Unusable;
pub use tally::Tally;
