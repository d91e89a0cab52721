//! Scheduler extender: filter, prioritize, preempt and bind.
//!
//! Bodies in, bodies out. Nothing here waits, and nothing is written but reservations; the binder creates the bindings. What a
//! body says of a pod is used for that call alone: a binding is made of what the watch has shown.

mod bind;
mod choose;
mod preempt;
mod wire;

use std::sync::Arc;

use self::choose::Choice;
use self::wire::{ExtenderArgs, FilterResult, HostPriority};
use divvy_index::Index;

pub use self::bind::{Bind, Binding};
pub use self::wire::Malformed;

/// Handlers of the extender's verbs.
#[derive(Debug)]
pub struct Extender {
    index: Arc<Index>,
    /// Most nodes that `filter` returns; 0: all that fit.
    shortlist: usize,
}

// === impl Extender ===

impl Extender {
    /// Answers from this index with at most `shortlist` nodes, or with all that fit if that is 0.
    pub fn new(index: Arc<Index>, shortlist: usize) -> Self {
        Self { index, shortlist }
    }

    /// `filter`: the nodes as good as the best, or why there are none.
    ///
    /// Where not all nodes could be looked at in time the answer is an error: after one kube-scheduler tries the pod again within
    /// 1 to 10 s whatever happens meanwhile, after a refusal not before something in the cluster changes
    /// (`determineSchedulingHintForInFlightPod` of `pkg/scheduler/backend/queue`).
    pub fn filter(&self, body: &[u8]) -> Result<Vec<u8>, Malformed> {
        let args: ExtenderArgs<'_> = wire::decode("filter", body)?;
        let names = args.names();
        let Some(pod) = &args.pod else { return Ok(wire::encode(&FilterResult::error("Pod is missing"))) };
        Ok(match self.choose(pod, &names) {
            Ok(Choice { kept, by_eviction, for_good }) => {
                wire::encode(&args.answer(&names, &kept, by_eviction, for_good))
            }
            Err(unrated) => wire::encode(&FilterResult::error(&unrated)),
        })
    }

    /// `prioritize`, for schedulers that still ask: 10 for the best node, less for each that is worse, 0 where the pod doesn't fit.
    pub fn prioritize(&self, body: &[u8]) -> Result<Vec<u8>, Malformed> {
        let args: ExtenderArgs<'_> = wire::decode("prioritize", body)?;
        let names = args.names();
        let scores = args.pod.as_ref().map_or_else(|| vec![0; names.len()], |pod| self.scores(pod, &names));
        let priorities = names.iter().zip(scores).map(|(host, score)| HostPriority { host, score });
        Ok(wire::encode(&priorities.collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests;
