//! The state for `/debug/state`: what this replica decides by.

use std::sync::Arc;
use std::time::Instant;

use divvy_api::gpuquota::Amount;
use divvy_index::{Index, Outcome, QuotaUse};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::aggregated_api::AggregatedApi;
use crate::lease::Leader;
use crate::watches::SyncStatus;

/// Sources of the state.
#[derive(Clone)]
pub struct DebugState {
    /// Nodes, reservations, pods that wait, quotas.
    pub index: Arc<Index>,
    /// Which replica leads.
    pub leader: watch::Receiver<Leader>,
    /// Status of the watches.
    pub sync_status: watch::Receiver<SyncStatus>,
    /// The aggregated API, where it is served.
    pub aggregated_api: Option<AggregatedApi>,
}

// === impl DebugState ===

impl DebugState {
    /// The state now. The nodes are those of one moment, the rest is of another one.
    pub fn read(&self) -> Value {
        let Self { index, leader, sync_status, aggregated_api } = self;
        let reserved = index.reserved().into_iter().map(|(uid, node)| json!({ "podUid": &*uid, "node": node }));
        let waiting = index.waiting().into_iter().map(|pod| {
            json!({
                "podUid": &*pod.uid, "namespace": pod.namespace, "name": pod.name, "priority": pod.priority,
                "containers": pod.containers,
            })
        });
        let without_plugin = index.without_plugin().into_iter();
        let without_plugin = without_plugin.map(|(node, why)| json!({ "node": &*node, "why": &*why }));
        let snapshot = index.snapshot();
        let outcomes = index.outcomes();
        let outcomes = Outcome::ALL.map(|outcome| (outcome.as_str().to_owned(), outcomes.get(outcome).into()));
        json!({
            "leader": leading(&leader.borrow(), Instant::now()),
            "watches": watches(&sync_status.borrow()),
            "reservations": reserved.collect::<Vec<_>>(),
            "reservationOutcomes": outcomes.into_iter().collect::<Map<_, _>>(),
            "waitingPods": waiting.collect::<Vec<_>>(),
            "distributionPods": snapshot.counted_pods(),
            "quotas": index.quotas().iter().map(quota).collect::<Vec<_>>(),
            "nodesWithoutPlugin": without_plugin.collect::<Vec<_>>(),
            "nodes": snapshot.overview(),
            "aggregatedApi": aggregated_api.as_ref().map(AggregatedApi::state),
        })
    }
}

fn leading(leader: &Leader, now: Instant) -> Value {
    match leader {
        Leader::Us { term, until } => {
            let left = until.saturating_duration_since(now).as_secs_f64();
            json!({ "who": "this replica", "term": term, "secondsLeft": left })
        }
        Leader::Other { identity } => json!({ "who": identity }),
        Leader::Nobody => json!({ "who": null }),
    }
}

fn watches(sync_status: &SyncStatus) -> Map<String, Value> {
    let listed = sync_status.listed().map(|kind| (kind, true));
    let all = listed.chain(sync_status.unlisted().map(|kind| (kind, false)));
    let shown = |(kind, listed)| json!({ "listed": listed, "problem": sync_status.problem(kind) });
    all.map(|of| (of.0.as_str().to_owned(), shown(of))).collect()
}

fn quota(quota: &QuotaUse) -> Value {
    let QuotaUse { namespace, name, models, limits, used } = quota;
    let hard = |amount| limits.as_ref().ok().and_then(|limits| limits.limit(amount));
    let amounts = Amount::ALL
        .map(|amount| (amount.key().to_owned(), json!({ "used": amount.in_totals(used), "hard": hard(amount) })));
    json!({
        "namespace": namespace, "name": name, "models": models, "problem": limits.as_ref().err().map(|why| &**why),
        "amounts": amounts.into_iter().collect::<Map<_, _>>(),
    })
}
