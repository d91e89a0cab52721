//! What is between the scheduler and a node, whatever its cards can hold.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

/// Why the scheduler gives a node no pods, by its Node object. The extender doesn't care: a `DaemonSet`'s pods go there all
/// the same, and the scheduler asks only about nodes that it would take. Nobody is told that there is room on such a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unschedulable {
    /// `kubectl cordon`.
    Cordoned,
    /// Its condition Ready is False, or Unknown: nothing is heard of the kubelet.
    NotReady,
    /// There is no Node of that name.
    Gone,
}

/// What is known of Node objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeObjects {
    by_name: HashMap<String, Option<Unschedulable>>,
    /// All that there are have been seen once.
    listed: bool,
}

// === impl Unschedulable ===

impl Unschedulable {
    /// Of a Node that is there.
    pub fn from_node(is_cordoned: bool, is_ready: bool) -> Option<Self> {
        match (is_ready, is_cordoned) {
            (false, _) => Some(Self::NotReady),
            (true, true) => Some(Self::Cordoned),
            (true, false) => None,
        }
    }

    /// Of a node whose cards would do.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Cordoned => "cordoned (fits otherwise)",
            Self::NotReady => "not ready (fits otherwise)",
            Self::Gone => "without a Node (fits otherwise)",
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
