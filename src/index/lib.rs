//! State of a cluster's GPUs as its nodes report it, and where pods fit: a prediction, made with the nodes' own placement
//! code. The node decides.
//!
//! ```text
//! GpuNode, Node, Pod ──▶ state ──publish──▶ snapshot ──▶ fit ──▶ ranking ──▶ explain
//!                          ▲ reservations                 └──── cluster: the Index ────┘
//! ```
//!
//! - [`pod`], [`node_selection`], [`pod_group`] and [`demand`]: what is read of a pod and of its group, and what it asks for.
//! - `state`: reports of nodes, pods and reservations behind one lock.
//! - `snapshot`: immutable nodes that readers hold without a lock.
//! - `fit`: one pod on one node: whether it fits, how well, why not.
//! - `ranking`: nodes compared, by fragmentation where a request distribution is known; scores are cached by shape of pod.
//! - [`explain`]: answers for people.
//!
//! The webhook keeps an [`Index`] for as long as it lives and fills it from watches; `kubectl divvy` fills one from lists
//! and asks it once.

mod cluster;
pub mod demand;
pub mod explain;
mod fit;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod node_selection;
mod nodes;
pub mod pod;
pub mod pod_group;
mod ranking;
mod snapshot;
mod state;

use std::sync::{LockResult, PoisonError};

pub use cluster::{Index, Step, Victim};
pub use demand::Exceeded;
pub use explain::{CardOverview, Expectation, ExpectedPart, Explanation, Feasibility, NodeOverview};
pub use fit::Query;
pub use nodes::{Holder, Node, NodeObject, NodeRef, Unschedulable};
pub use ranking::{BEST_SCORE, ranked, shortlist};
pub use snapshot::{Ranking, Refusal, Snapshot};
pub use state::{DecayedCounts, NotReserved, Outcome, Outcomes, QuotaUse, Unusable, next_distribution};

/// What a lock guards is never left half changed, so a panic elsewhere is no reason to stop answering.
pub(crate) fn unpoisoned<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}
