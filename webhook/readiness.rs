//! The condition `Ready` of a `GpuNode` whose daemon is gone. The daemon itself can't say so; the leader sets the condition to
//! `Unknown`, as the node controller does with a Node's, and a daemon that is back writes its own again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::gpunode::GpuNodeReport;
use divvy_index::Index;
use divvy_runtime::api_server::{ApiServer, Requests, within_deadline};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tracing::warn;

/// Keeps the condition of nodes without a daemon.
pub struct Readiness {
    index: Arc<Index>,
    api: Api<GpuNodeReport>,
    requests: Requests,
    absences: Absences,
}

/// Nodes without a daemon, by name.
#[derive(Debug, Default)]
struct Absences(HashMap<Arc<str>, Absence>);

/// Time since which a daemon is gone.
#[derive(Clone, Copy, Debug)]
struct Absence {
    since: Instant,
    /// Whether the condition was written. A daemon that then writes another one is there: it isn't contradicted again.
    is_written: bool,
}

/// As the log of failed requests names it.
const REQUEST: &str = "patch gpunodes/status";
/// Interval between rounds.
const PERIOD: Duration = Duration::from_secs(15);
/// Time for which the kubelet must have no GPUs: a daemon or a kubelet that restarts is back sooner.
const GONE_FOR: Duration = Duration::from_secs(60);

// === impl Readiness ===

impl Readiness {
    /// Prepares to write the conditions of nodes that this index knows.
    pub fn new(api_server: ApiServer, index: Arc<Index>) -> Self {
        let ApiServer { client, requests } = api_server;
        Self { index, api: Api::all(client), requests, absences: Absences::default() }
    }

    /// Writes conditions while `leads`, for ever.
    pub async fn run(mut self, leads: impl Fn() -> bool) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for (name, message) in self.absences.due(self.index.without_plugin(), Instant::now()) {
                if !leads() {
                    break;
                }
                match self.write(&name, &message).await {
                    Ok(()) => {
                        self.requests.succeeded(REQUEST);
                        self.absences.written(&name);
                    }
                    Err(error) => self.requests.failed(REQUEST, &error, PERIOD),
                }
            }
        }
    }

    async fn write(&self, name: &str, message: &str) -> kube::Result<()> {
        let node = within_deadline(self.api.get(name)).await?;
        let Some(patch) = patch(&node, message, Timestamp::now()) else { return Ok(()) };
        let patch = Patch::<()>::Json(serde_json::from_value(patch).map_err(kube::Error::SerdeError)?);
        within_deadline(self.api.patch_status(name, &PatchParams::default(), &patch)).await?;
        warn!(node = name, "condition Ready of the GpuNode is Unknown now: {message}");
        Ok(())
    }
}

// === impl Absences ===

impl Absences {
    /// Nodes whose condition is due, of all those that are without a daemon now.
    fn due(&mut self, absent: Vec<(Arc<str>, Arc<str>)>, now: Instant) -> Vec<(Arc<str>, Arc<str>)> {
        let names: HashSet<&str> = absent.iter().map(|(name, _)| &**name).collect();
        self.0.retain(|name, _| names.contains(&**name));
        let is_due = |(name, _): &(Arc<str>, Arc<str>)| {
            let fresh = Absence { since: now, is_written: false };
            let absence = self.0.entry(Arc::clone(name)).or_insert(fresh);
            !absence.is_written && now.duration_since(absence.since) >= GONE_FOR
        };
        absent.into_iter().filter(is_due).collect()
    }

    fn written(&mut self, name: &str) {
        self.0.get_mut(name).into_iter().for_each(|absence| absence.is_written = true);
    }
}

/// A JSON patch that makes the condition `Ready` of this very version `Unknown`; `None` unless it is `True`.
fn patch(node: &GpuNodeReport, message: &str, now: Timestamp) -> Option<Value> {
    let conditions = &node.conditions;
    let at = conditions.iter().position(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    let mut condition = json!(conditions[at]);
    condition["status"] = "Unknown".into();
    condition["reason"] = "PluginNotRegistered".into();
    condition["message"] = message.into();
    condition["lastTransitionTime"] = json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    Some(json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": node.resource_version() },
        { "op": "replace", "path": format!("/status/conditions/{at}"), "value": condition },
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_is_due_once_after_a_minute() {
        let (mut absences, start) = (Absences::default(), Instant::now());
        let mut due = |absent: &[&str], seconds| {
            let absent = absent.iter().map(|name| ((*name).into(), "why".into())).collect();
            let due = absences.due(absent, start + Duration::from_secs(seconds));
            for (name, _) in &due {
                absences.written(name);
            }
            due.into_iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>()
        };
        assert!(due(&["a"], 0).is_empty());
        assert!(due(&["a", "b"], 59).is_empty());
        assert_eq!(due(&["a", "b"], 60), ["a"]);
        assert!(due(&["a"], 75).is_empty(), "written, and b is back");
        assert!(due(&["a", "b"], 119).is_empty(), "b is gone anew");
        assert!(due(&[], 120).is_empty());
        assert!(due(&["a"], 121).is_empty(), "so is a");
        assert_eq!(due(&["a"], 181), ["a"]);
    }

    #[test]
    fn only_a_node_that_says_ready_is_patched() {
        let condition = |kind: &str, status: &str| {
            json!({ "type": kind, "status": status, "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let node = |conditions: Value| {
            let mut node = GpuNodeReport {
                conditions: serde_json::from_value(conditions).expect("conditions"),
                ..GpuNodeReport::default()
            };
            node.metadata.resource_version = Some("7".to_owned());
            patch(&node, "0 allocatable", Timestamp::UNIX_EPOCH)
        };
        assert_eq!(node(json!([condition("Draining", "True"), condition("Ready", "False")])), None);
        assert_eq!(node(json!([condition("Ready", "Unknown")])), None);
        insta::assert_json_snapshot!(node(json!([condition("Draining", "False"), condition("Ready", "True")])), @r#"
        [
          {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": "7"
          },
          {
            "op": "replace",
            "path": "/status/conditions/1",
            "value": {
              "lastTransitionTime": "1970-01-01T00:00:00Z",
              "message": "0 allocatable",
              "reason": "PluginNotRegistered",
              "status": "Unknown",
              "type": "Ready"
            }
          }
        ]
        "#);
    }
}
