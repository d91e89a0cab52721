//! What is between the scheduler and a node, whatever its cards can hold.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

/// Why the scheduler gives a node no pods, by its Node object. The extender doesn't care: a `DaemonSet`'s pods go there all
/// the same, and the scheduler asks only about nodes that it would take. Nobody is told that there is room on such a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Bar {
    /// `kubectl cordon`.
    Cordoned,
    /// Its condition Ready is False, or Unknown: nothing is heard of the kubelet.
    NotReady,
    /// There is no Node of that name.
    Gone,
}

/// What is known of Node objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machines {
    bars: HashMap<String, Option<Bar>>,
    /// All that there are have been seen once.
    listed: bool,
}

// === impl Bar ===

impl Bar {
    /// Of a Node that is there.
    pub fn of(is_cordoned: bool, is_ready: bool) -> Option<Self> {
        match (is_ready, is_cordoned) {
            (false, _) => Some(Self::NotReady),
            (true, true) => Some(Self::Cordoned),
            (true, false) => None,
        }
    }

    /// Of a node whose cards would do.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Cordoned => "has room, but is cordoned",
            Self::NotReady => "has room, but its Node isn't ready",
            Self::Gone => "has room, but its Node is gone",
        }
    }
}

// === impl Machines ===

impl Machines {
    pub(crate) fn bar(&self, name: &str) -> Option<Bar> {
        self.bars.get(name).copied().unwrap_or_else(|| self.listed.then_some(Bar::Gone))
    }

    pub(crate) fn apply(&mut self, name: &str, bar: Option<Bar>) {
        self.bars.insert(name.to_owned(), bar);
    }

    pub(crate) fn delete(&mut self, name: &str) {
        self.bars.remove(name);
    }

    pub(crate) fn keep(&mut self, names: &HashSet<String>) {
        self.bars.retain(|name, _| names.contains(name));
        self.listed = true;
    }
}
