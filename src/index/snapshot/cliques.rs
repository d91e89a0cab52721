//! NVLink that reaches several nodes: of nodes that are equal otherwise, those in one clique are better for the pods of a group.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Snapshot;
use crate::fit::Query;
use crate::nodes::NodeRef;

// === impl Snapshot ===

impl Snapshot {
    /// Divides nodes into those in the clique of the pod's group and others. Its clique is where pods of the group are already.
    /// Where there is none, or none that has free GPUs for it, it is the smallest in which as many nodes could take the pod as
    /// pods of the group wait, or else the one with most such nodes.
    pub(super) fn near(&self, query: &Query<'_>, nodes: Vec<NodeRef>) -> (Vec<NodeRef>, Vec<NodeRef>) {
        let view = &self.view;
        let clique_of = |node: &NodeRef| view.node(node.place)?.clique.as_ref();
        let Some(group) = self.pod.group.as_ref().filter(|_| query.demand.claiming() > 0) else {
            return (Vec::new(), nodes);
        };
        let placed = group.placed.iter().filter_map(|name| view.find(name)?.clique.as_ref());
        let placed: BTreeSet<&Arc<str>> = placed.collect();
        let mut fitting: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for node in &nodes {
            if let Some(clique) = clique_of(node).filter(|_| query.at_best(view, node.place).is_some()) {
                *fitting.entry(clique).or_default() += 1;
            }
        }
        let mut near: BTreeSet<&Arc<str>> = fitting.keys().copied().filter(|clique| placed.contains(clique)).collect();
        if near.is_empty() {
            let enough = fitting.iter().filter(|(_, nodes)| **nodes >= group.waiting).min_by_key(|(_, nodes)| **nodes);
            let most = || fitting.iter().min_by_key(|(_, nodes)| Reverse(**nodes));
            near.extend(enough.or_else(most).map(|(clique, _)| *clique));
        }
        nodes.into_iter().partition(|node| clique_of(node).is_some_and(|clique| near.contains(clique)))
    }
}
