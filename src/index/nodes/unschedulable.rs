//! Why the scheduler filters a node out, whatever its GPUs can hold.

use serde::Serialize;

/// Why the scheduler gives a node no pods, by its Node object. The extender ignores it: pods of a `DaemonSet` go there all the
/// same, and the scheduler asks only about nodes that it would take. Hints and explanations never count such a node as
/// fitting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unschedulable {
    /// `kubectl cordon`.
    Cordoned,
    /// Condition Ready is False, or Unknown.
    NotReady,
    /// There is no Node of that name.
    Gone,
}

// === impl Unschedulable ===

impl Unschedulable {
    /// Reason for a Node that exists.
    pub fn from_node(is_cordoned: bool, is_ready: bool) -> Option<Self> {
        match (is_ready, is_cordoned) {
            (false, _) => Some(Self::NotReady),
            (true, true) => Some(Self::Cordoned),
            (true, false) => None,
        }
    }

    /// Reason for a node whose GPUs would do.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Cordoned => "node(s) were cordoned (GPUs fit)",
            Self::NotReady => "node(s) were not ready (GPUs fit)",
            Self::Gone => "node(s) had no Node object (GPUs fit)",
        }
    }
}
