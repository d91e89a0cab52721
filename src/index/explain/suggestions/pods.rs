//! Pods in the way: the fewest on a node whose end makes room, and of such nodes those where that is likeliest soon.

use std::sync::Arc;

use super::{Change, EndingPod, MOST, Search, Suggestion};
use crate::nodes::{Holder, Node};
use crate::pod::PodEnd;

/// Pods whose end would make room on a node.
struct InTheWay<'a> {
    node: &'a Node,
    /// The likeliest to end first.
    pods: Vec<&'a Holder>,
}

impl Search<'_> {
    /// Pods whose end, or eviction, makes room on a node.
    pub(super) fn by_end_of_pods(&self) -> Vec<Suggestion> {
        let lower = |holder: &Holder| holder.priority < self.demand.priority;
        let mut evictions: Vec<InTheWay<'_>> = Vec::new();
        let mut ends: Vec<InTheWay<'_>> = Vec::new();
        for node in self.open() {
            if self.is_late() {
                break;
            }
            let evicted = self.in_the_way(node, lower);
            if evicted.is_none() || evictions.len() >= MOST {
                ends.extend(self.in_the_way(node, |_| true));
            }
            evictions.extend(evicted);
        }
        let mut all = self.best_of(evictions, |pods| Change::Preempt { pods });
        all.extend(self.best_of(ends, |pods| Change::EndOfPods { pods }));
        all
    }

    fn best_of(&self, mut found: Vec<InTheWay<'_>>, change: fn(Vec<EndingPod>) -> Change) -> Vec<Suggestion> {
        found.sort_by_cached_key(|found| self.cost(found));
        let suggestion = |InTheWay { node, pods }: InTheWay<'_>| {
            let state = node.state_without(|holder| self.is_own(holder) || is_one_of(&pods, holder));
            let change = change(pods.iter().map(|holder| self.ending(holder)).collect());
            self.found(change, node, &state, self.demand)
        };
        found.into_iter().take(MOST).map(suggestion).collect()
    }

    /// The least of those pods that may go whose absence makes room on the node; `None` if all of them aren't enough, or none
    /// is in the way.
    fn in_the_way<'n>(&self, node: &'n Node, may_go: impl Fn(&Holder) -> bool) -> Option<InTheWay<'n>> {
        let others = node.holders.iter().filter(|holder| !self.is_own(holder) && may_go(holder));
        let mut pods: Vec<&Holder> = others.collect();
        let fits = |gone: &[&Holder]| {
            let state = node.state_without(|holder| self.is_own(holder) || is_one_of(gone, holder));
            self.query.fits(node, &state)
        };
        if pods.is_empty() || !fits(&pods) {
            return None;
        }
        pods.sort_by_cached_key(|holder| (self.end(holder), size(holder), Arc::clone(&holder.uid)));
        if let Some(one) = pods.iter().find(|pod| fits(&[pod])) {
            return Some(InTheWay { node, pods: vec![*one] });
        }
        // What is unlikely to end stays where the rest is enough.
        for at in (0..pods.len()).rev() {
            let kept = pods.remove(at);
            if !fits(&pods) {
                pods.insert(at, kept);
            }
        }
        Some(InTheWay { node, pods })
    }

    /// Order of nodes: by the pod that is likely to end last, the number of pods, and what they lose.
    fn cost(&self, InTheWay { node, pods }: &InTheWay<'_>) -> (PodEnd, usize, u64, String) {
        let last = pods.iter().map(|pod| self.end(pod)).max().unwrap_or_default();
        (last, pods.len(), pods.iter().map(|pod| size(pod)).sum(), node.name.to_string())
    }

    fn end(&self, holder: &Holder) -> PodEnd {
        self.objects.pods.get(&*holder.uid).map(|known| known.end).unwrap_or_default()
    }

    fn ending(&self, holder: &Holder) -> EndingPod {
        let known = self.objects.pods.get(&*holder.uid).cloned().unwrap_or_default();
        let uid = holder.uid.to_string();
        let namespace = holder.namespace.to_string();
        EndingPod { uid, namespace, name: known.name, end: known.end }
    }
}

fn is_one_of(some: &[&Holder], holder: &Holder) -> bool {
    some.iter().any(|one| one.uid == holder.uid)
}

/// Memory that a pod holds, in MiB.
fn size(holder: &Holder) -> u64 {
    holder.on.iter().map(|taken| taken.share.memory.as_mib()).sum()
}
