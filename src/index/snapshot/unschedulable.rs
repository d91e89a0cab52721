//! Why the scheduler filters a node out, whatever its GPUs can hold.

use std::collections::{HashMap, HashSet};

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

/// Known Node objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeObjects {
    by_name: HashMap<String, Option<Unschedulable>>,
    /// Whether all Nodes have been listed once.
    listed: bool,
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

// === impl NodeObjects ===

impl NodeObjects {
    pub(crate) fn unschedulable(&self, name: &str) -> Option<Unschedulable> {
        self.by_name.get(name).copied().unwrap_or_else(|| self.listed.then_some(Unschedulable::Gone))
    }

    pub(crate) fn apply(&mut self, name: &str, unschedulable: Option<Unschedulable>) {
        self.by_name.insert(name.to_owned(), unschedulable);
    }

    pub(crate) fn delete(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    pub(crate) fn keep(&mut self, names: &HashSet<String>) {
        self.by_name.retain(|name, _| names.contains(name));
        self.listed = true;
    }
}
