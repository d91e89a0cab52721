//! Pods whose eviction makes room on a node's cards.

use std::cmp::Reverse;
use std::time::Instant;

use crate::fit::Query;
use crate::nodes::{Holder, Node};

// === impl Query ===

impl Query<'_> {
    /// These victims, with as many pods of lower priority as it takes; `None` if even all of them don't make room, or if none is
    /// needed. From `deadline` on nothing is tried any more, so that more pods may be named than it takes.
    ///
    /// Pods are added from the lowest priority up and left alone again from the highest down where it goes without them. The
    /// given victims stay: a scheduler wants their CPU and memory too. Room that is kept for a pod of lower priority is free,
    /// and nobody can be evicted from it: a victim that isn't on the node is an error to the scheduler.
    pub fn victims(&self, node: &Node, given: &[String], deadline: Instant) -> Option<Vec<String>> {
        let is_given = |holder: &Holder| given.iter().any(|uid| *uid == *holder.uid);
        let fits_without = |more: &[&Holder]| {
            let is_evicted = |holder: &Holder| is_given(holder) || more.iter().any(|gone| gone.uid == holder.uid);
            Instant::now() < deadline && self.fits_without(node, is_evicted)
        };
        let mut more: Vec<&Holder> = Vec::new();
        if !fits_without(&more) {
            let may_go = |holder: &&Holder| self.is_above(holder) && !holder.is_nominated && !is_given(holder);
            more.extend(node.holders.iter().filter(may_go));
            more.sort_by_key(|holder| Reverse(holder.priority));
            if !fits_without(&more) {
                return None;
            }
            let mut at = 0;
            while at < more.len() {
                let spared = more.remove(at);
                if !fits_without(&more) {
                    more.insert(at, spared);
                    at += 1;
                }
            }
        }
        let uids = given.iter().cloned().chain(more.iter().map(|holder| holder.uid.to_string()));
        Some(uids.collect::<Vec<_>>()).filter(|uids| !uids.is_empty())
    }

    /// Whether the pod fits once these are evicted, as room that is kept for a pod of lower priority is free.
    fn fits_without(&self, node: &Node, is_evicted: impl Fn(&Holder) -> bool) -> bool {
        let makes_way = |holder: &Holder| holder.is_nominated && self.is_above(holder);
        let is_gone = |holder: &Holder| is_evicted(holder) || makes_way(holder) || holder.uid == self.demand.uid;
        self.fits(node, &node.state_without(is_gone))
    }

    fn is_above(&self, holder: &Holder) -> bool {
        holder.priority < self.demand.priority
    }
}
