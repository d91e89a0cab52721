//! `preempt`: whether evicting the scheduler's victims frees the right cards, and which other pods it takes.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Extender;
use super::wire::{self, Malformed, MetaPod, MetaVictims, PreemptionArgs, PreemptionResult, Victims};
use divvy_index::demand::Demand;
use divvy_index::{Holder, Node, Query};

// === impl Extender ===

impl Extender {
    /// `preempt`: the nodes on which evictions make room on cards, each with all of its victims.
    pub fn preempt(&self, body: &[u8]) -> Result<Vec<u8>, Malformed> {
        let PreemptionArgs { pod, victims } = wire::decode("preempt", body)?;
        let demand = pod.and_then(|pod| Demand::of(&pod, self.index.config()).transpose());
        let demand = match demand {
            Some(Ok(demand)) => Some(demand),
            Some(Err(_)) => return Ok(wire::encode(&PreemptionResult::default())),
            None => None,
        };
        let exceeded = demand.as_ref().map(|demand| self.index.exceeded(demand)).unwrap_or_default();
        let allowed = demand.as_ref().map(|demand| demand.avoiding(&exceeded));
        let question = allowed.as_ref().map(|demand| Query::new(demand, self.index.config()));
        let complete = victims.iter().filter_map(|(name, victims)| {
            let uids = match &question {
                None => Some(victims.uids.clone()),
                Some(question) => self.index.node(name).and_then(|node| completed(&node, question, victims)),
            };
            Some((name, victims, uids?))
        });
        let complete: Vec<(&String, &Victims, Vec<String>)> = complete.collect();
        let answer = complete.iter().map(|(name, victims, uids)| {
            let pods = uids.iter().map(|uid| MetaPod { uid }).collect();
            (name.as_str(), MetaVictims { pods, pdb_violations: victims.pdb_violations })
        });
        Ok(wire::encode(&PreemptionResult { node_name_to_meta_victims: answer.collect() }))
    }
}

/// The scheduler's victims, with as many pods of lower priority as it takes; `None` if even all of them don't make room.
///
/// Pods are added from the lowest priority up and left alone again from the highest down where it goes without them. The
/// scheduler's own victims stay: it wants their CPU and memory too. Room that is kept for a pod of lower priority is free,
/// and nobody can be evicted from it: a victim that isn't on the node is an error to the scheduler.
fn completed(node: &Node, question: &Query<'_>, victims: &Victims) -> Option<Vec<String>> {
    let given: BTreeSet<&str> = victims.uids.iter().map(String::as_str).collect();
    let is_given = |holder: &Holder| given.contains(&*holder.uid);
    let is_lower = |holder: &Holder| holder.priority < question.demand.priority;
    let fits_without = |more: &[&Holder]| {
        let is_gone = |holder: &Holder| {
            let is_evicted = is_given(holder) || more.iter().any(|gone| gone.uid == holder.uid);
            is_evicted || (holder.is_nominated && is_lower(holder))
        };
        question.fits(node, &node.cards_without(|holder| is_gone(holder) || holder.uid == question.demand.uid))
    };
    let mut more: Vec<&Holder> = Vec::new();
    if !fits_without(&more) {
        let may_go = |holder: &&Holder| is_lower(holder) && !holder.is_nominated && !is_given(holder);
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
    let uids = victims.uids.iter().cloned().chain(more.iter().map(|holder| holder.uid.to_string()));
    Some(uids.collect::<Vec<_>>()).filter(|uids| !uids.is_empty())
}
