//! Soft taints: of effect `PreferNoSchedule`, on nodes with free GPUs.
//!
//! kube-scheduler places pods without GPUs by itself, and spreads them: it prefers the nodes with most free CPU, among them
//! those whose GPUs are free, which then lack the CPU for a pod with GPUs. The taints lead such pods elsewhere as long as there is
//! room. Pods that request GPUs tolerate them, by admission.
//!
//! The leader writes them, as it alone has both the free CPU of all nodes and the requests that are expected. `spec.taints` is
//! one list that belongs to many: it is written only as it was read, and the others' taints stay as they are. The keys are Divvy's
//! own, so that what is ours can be told and removed where others taint nodes with `nvidia.com/gpu`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::names::taint;
use divvy_index::Index;
use divvy_runtime::api_server::{ApiServer, Requests, within_deadline};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{debug, error};

use crate::watches::SyncStatus;

/// Keeps the soft taints of all nodes.
pub struct SoftTaints {
    index: Arc<Index>,
    api: Api<Node>,
    requests: Requests,
    sync_status: watch::Receiver<SyncStatus>,
    enabled: bool,
    written: LastWrites,
}

/// Nodes that were written lately.
#[derive(Debug, Default)]
struct LastWrites {
    /// By name.
    times: HashMap<String, Instant>,
    /// Name of the last node that was due in the last round: the next round goes on after it, so that each comes in its turn where
    /// more are due than are written.
    last: String,
}

/// As the log of failed requests names it.
const REQUEST: &str = "patch nodes (soft taints)";
/// Interval between rounds.
const PERIOD: Duration = Duration::from_secs(5);
/// Shortest time between two writes of a node.
const PAUSE: Duration = Duration::from_secs(30);
/// Most nodes written in one round; the rest follow in the next.
const MOST: usize = 50;

// === impl SoftTaints ===

impl SoftTaints {
    /// Prepares to taint the nodes that this index knows; unless `enabled`, to remove the taints.
    pub fn new(
        api_server: ApiServer,
        index: Arc<Index>,
        sync_status: watch::Receiver<SyncStatus>,
        enabled: bool,
    ) -> Self {
        let ApiServer { client, requests } = api_server;
        Self { index, api: Api::all(client), requests, sync_status, enabled, written: LastWrites::default() }
    }

    /// Writes taints while `leads`, for ever.
    pub async fn run(mut self, leads: impl Fn() -> bool) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !leads() || !self.sync_status.borrow().has_synced() {
                continue;
            }
            let index = Arc::clone(&self.index);
            let enabled = self.enabled;
            let due = match tokio::task::spawn_blocking(move || index.soft_taints_due(enabled)).await {
                Ok(due) => due,
                Err(error) => {
                    error!(%error, "finding the nodes whose soft taints have to change failed");
                    continue;
                }
            };
            for (name, wanted) in self.written.due(due, Instant::now()) {
                if !leads() {
                    break;
                }
                match self.write(&name, wanted).await {
                    Ok(()) => self.requests.succeeded(REQUEST),
                    Err(error) => self.requests.failed(REQUEST, &error, PERIOD),
                }
            }
        }
    }

    async fn write(&mut self, name: &str, wanted: u32) -> kube::Result<()> {
        let node = within_deadline(self.api.get(name)).await?;
        let Some(patch) = patch(&node, wanted) else { return Ok(()) };
        let patch = Patch::<()>::Json(serde_json::from_value(patch).map_err(kube::Error::SerdeError)?);
        within_deadline(self.api.patch(name, &PatchParams::default(), &patch)).await?;
        self.written.times.insert(name.to_owned(), Instant::now());
        debug!(node = name, taints = wanted, "soft taints of the Node changed");
        Ok(())
    }
}

// === impl LastWrites ===

impl LastWrites {
    /// Those nodes that may be written again.
    fn due(&mut self, nodes: Vec<(String, u32)>, now: Instant) -> Vec<(String, u32)> {
        self.times.retain(|_, written| now.duration_since(*written) < PAUSE);
        let mut due: Vec<(String, u32)> =
            nodes.into_iter().filter(|(name, _)| !self.times.contains_key(name)).collect();
        due.sort_unstable();
        let next = due.partition_point(|(name, _)| *name <= self.last);
        due.rotate_left(next);
        due.truncate(MOST);
        if let Some((name, _)) = due.last() {
            self.last.clone_from(name);
        }
        due
    }
}

fn is_ours(taint: &Taint) -> bool {
    taint::is_soft(&taint.key, &taint.effect)
}

/// A JSON patch that gives this very version of a Node so many soft taints; `None` if it has them.
fn patch(node: &Node, wanted: u32) -> Option<Value> {
    let present = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let wanted = taint::SOFT.into_iter().take(usize::try_from(wanted).unwrap_or(usize::MAX));
    let ours = present.iter().filter(|taint| is_ours(taint)).map(|taint| &*taint.key);
    if ours.eq(wanted.clone()) {
        return None;
    }
    let others = present.iter().filter(|taint| !is_ours(taint)).cloned();
    let own = wanted.map(|key| Taint { key: key.to_owned(), effect: taint::EFFECT.to_owned(), ..Taint::default() });
    Some(json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": node.resource_version() },
        { "op": "add", "path": "/spec/taints", "value": others.chain(own).collect::<Vec<_>>() },
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: &Value) -> Node {
        let node = json!({ "metadata": { "name": "n", "resourceVersion": "7" }, "spec": { "taints": taints } });
        serde_json::from_value(node).expect("a Node")
    }

    fn soft(key: &str) -> Value {
        json!({ "key": key, "effect": "PreferNoSchedule" })
    }

    #[test]
    fn taints_of_others_stay_in_place() {
        let foreign = || json!({ "key": "nvidia.com/gpu", "value": "present", "effect": "PreferNoSchedule" });
        let evicting = || json!({ "key": "divvy.dev/free-gpus", "effect": "NoSchedule" });
        let [free, cpu] = taint::SOFT.map(soft);
        let taints = |taints: Value, wanted| patch(&node(&taints), wanted).map(|patch| patch[1]["value"].clone());
        assert_eq!(taints(json!([foreign(), evicting()]), 1), Some(json!([foreign(), evicting(), free])));
        assert_eq!(taints(json!([free, foreign(), cpu]), 1), Some(json!([foreign(), free])));
        assert_eq!(taints(json!([free, foreign()]), 0), Some(json!([foreign()])));
        assert_eq!(taints(json!([free, foreign(), cpu]), 2), None, "wherever they stand");
        assert_eq!(taints(Value::Null, 2), Some(json!([free, cpu])));
        assert_eq!(taints(Value::Null, 0), None);
        let patched = patch(&node(&Value::Null), 1).expect("a taint");
        assert_eq!(patched[0], json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" }));
    }

    #[test]
    fn node_is_written_once_in_half_a_minute() {
        let (mut written, start) = (LastWrites::default(), Instant::now());
        let due = |written: &mut LastWrites, seconds| {
            let due = written.due(vec![("a".to_owned(), 1)], start + Duration::from_secs(seconds));
            due.len()
        };
        assert_eq!(due(&mut written, 0), 1);
        written.times.insert("a".to_owned(), start);
        assert_eq!([due(&mut written, 29), due(&mut written, 30)], [0, 1]);
    }

    #[test]
    fn each_node_comes_in_its_turn_where_many_are_due() {
        let mut written = LastWrites::default();
        let mut due = || {
            let many = (0..MOST + 20).rev().map(|number| (format!("n{number:03}"), 1)).collect();
            let due = written.due(many, Instant::now());
            (due.len(), due[0].0.clone(), due[MOST - 1].0.clone())
        };
        assert_eq!(due(), (MOST, "n000".to_owned(), "n049".to_owned()));
        assert_eq!(due(), (MOST, "n050".to_owned(), "n029".to_owned()), "though none was written");
    }
}
