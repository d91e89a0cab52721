//! `preempt`: whether evicting the scheduler's victims frees the right cards, and which other pods it takes.

use std::time::{Duration, Instant};

use super::Extender;
use super::wire::{self, Malformed, MetaPod, MetaVictims, PreemptionArgs, PreemptionResult, Victims};
use divvy_index::Query;
use divvy_index::demand::Demand;

/// Longest search for victims in one call: the scheduler looks at no other pod meanwhile. Nodes that it doesn't get to are left
/// out, and more pods may be named than it takes.
const PATIENCE: Duration = Duration::from_millis(500);

// === impl Extender ===

impl Extender {
    /// `preempt`: the nodes on which evictions make room on cards, each with all of its victims.
    pub fn preempt(&self, body: &[u8]) -> Result<Vec<u8>, Malformed> {
        let PreemptionArgs { pod, victims } = wire::decode("preempt", body)?;
        let demand = pod.and_then(|pod| Demand::read(&pod, self.index.config()).transpose());
        let demand = match demand {
            Some(Ok(demand)) => Some(demand),
            Some(Err(_)) => return Ok(wire::encode(&PreemptionResult::default())),
            None => None,
        };
        let snapshot = demand.as_ref().map_or_else(|| self.index.snapshot(), |demand| self.index.snapshot_for(demand));
        let allowed = demand.as_ref().map(|demand| demand.avoiding(snapshot.exceeded()));
        let question = allowed.as_ref().map(|demand| Query::new(demand, self.index.config()));
        let deadline = Instant::now() + PATIENCE;
        let complete = victims.iter().filter_map(|(name, victims)| {
            let uids = match &question {
                None => Some(victims.uids.clone()),
                Some(question) => snapshot.node(name).and_then(|node| question.victims(node, &victims.uids, deadline)),
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
