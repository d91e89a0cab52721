//! Why a pod doesn't fit on the nodes that were asked about.

use std::sync::Arc;

use super::Snapshot;
use crate::fit::{Query, ReasonSummaries};
use crate::nodes::NodeRef;

/// Why a pod doesn't fit on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Position of the node among the names.
    pub name: usize,
    /// Reason with counts and amounts, or without where there are many nodes.
    pub reason: Arc<str>,
    /// Whether it would fit if the pods of lower priority were gone.
    pub by_eviction: bool,
}

/// Most nodes of one answer whose reasons give figures. Among more, nearly each would have a reason of its own, and an event
/// of kube-scheduler ends after 1 024 characters.
const DETAILED: usize = 32;

// === impl Snapshot ===

impl Snapshot {
    /// Why the pod doesn't fit on these nodes, as [`rank`](Self::rank) found.
    ///
    /// The query is apart from quotas; those that are exceeded are reasons of their own.
    pub fn refusals(&self, query: &Query<'_>, asked: &[NodeRef]) -> Vec<Refusal> {
        let mut summaries = ReasonSummaries::default();
        let are_many = asked.len() > DETAILED;
        let mut refusals = Vec::with_capacity(asked.len());
        for NodeRef { name, place, .. } in asked.iter().copied() {
            let Some(node) = self.view.node(place) else { continue };
            if let Some(reason) = node.why_over_quota(query, self.exceeded()) {
                refusals.push(Refusal { name, reason, by_eviction: false });
                continue;
            }
            let why_not =
                if are_many { summaries.why_not(query, &self.view, (place, node)) } else { node.why_not(query) };
            // What has changed since it was scored fails for now.
            let reason = why_not.unwrap_or_else(|| "GPUs have just become free".into());
            refusals.push(Refusal { name, reason, by_eviction: node.may_be_cleared_for(query) });
        }
        refusals
    }
}
