//! The leader's planner: writes what the index plans for waiting pods, so that kube-scheduler, which nobody has configured, binds
//! each to the node where its GPUs are reserved.
//!
//! Of a pod with our gate first the node is nominated, then the gate goes together with the plan: from then on the scheduler
//! tries the nominated node first, and alone if that can hold the pod (`evaluateNominatedNode` of kube-scheduler's
//! `schedule_one.go`). Nothing here is in the scheduler's way.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::annotation::{self, Planned};
use divvy_api::names::annotation::PLANNED;
use divvy_api::names::{GATE, condition};
use divvy_index::demand::Demand;
use divvy_index::{Index, Step, Victim};
use divvy_runtime::api_server::{ApiServer, Requests, unanswered};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::lease::Leader;

/// Plans and writes while this replica leads.
pub struct Planner {
    /// The API server.
    pub api_server: ApiServer,
    /// Plans, and learns what was written.
    pub index: Arc<Index>,
    /// The replica that leads.
    pub leader: watch::Receiver<Leader>,
    /// The term for which the last leader's reservations are known.
    pub serving: watch::Receiver<u64>,
    /// Writes under way: the Lease is kept until they are over.
    pub calls: TaskTracker,
}

/// Writes of one pod.
#[derive(Clone)]
struct Writer {
    client: Client,
    index: Arc<Index>,
    requests: Requests,
}

/// What came of a write.
enum Failure {
    /// The API server has refused it.
    Refused(kube::Error),
    /// No answer: it may have been made.
    Unknown(kube::Error),
}

/// Pods that are written at a time.
const AT_ONCE: usize = 32;
/// Longest time for one search; then what was found is written.
const SEARCH: Duration = Duration::from_millis(20);
/// Longest wait for the API server.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval at which pods are looked for that an autoscaler has to see.
const PERIOD: Duration = Duration::from_secs(1);
/// Time after a write that the API server has refused, before the pod is planned again for the first time.
const PAUSE: Duration = Duration::from_secs(1);
/// What the status says of a pod whose scheduler had no use of the plan.
const NOT_SCHEDULED: &str = "its scheduler found no node for it, also not the one where GPUs were reserved: its event FailedScheduling \
                             says why. GPUs are reserved again in a while";
/// Times that a pod is written which others change at the same time.
const ATTEMPTS: usize = 3;
/// The request, as it is logged.
const REQUEST: &str = "patch pods (plans)";

// === impl Planner ===

impl Planner {
    /// Plans at every change, for ever.
    pub async fn run(mut self) {
        let changed = Arc::new(Notify::new());
        let wakes = Arc::clone(&changed);
        self.index.wake(move || wakes.notify_one());
        let index = Arc::clone(&self.index);
        let ApiServer { client, requests } = self.api_server.clone();
        let writer = Writer { client, index, requests };
        let mut under_way = JoinSet::new();
        let mut busy = HashSet::new();
        loop {
            // A group is written as a whole.
            let places = AT_ONCE.saturating_sub(under_way.len());
            let mut is_more = false;
            if let Some(until) = self.leads_until().filter(|_| places > 0) {
                let (steps, more) = self.steps(places, &busy).await;
                is_more = more;
                for step in steps {
                    busy.insert(Arc::clone(step.uid()));
                    let writer = writer.clone();
                    let call = self.calls.token();
                    under_way.spawn(async move {
                        writer.write(&step, until).await;
                        drop(call);
                        Arc::clone(step.uid())
                    });
                }
            }
            if is_more && under_way.len() < AT_ONCE {
                continue;
            }
            tokio::select! {
                () = changed.notified(), if under_way.len() < AT_ONCE => {}
                Some(written) = under_way.join_next() => {
                    if let Ok(uid) = written {
                        busy.remove(&uid);
                    }
                }
                changed = self.serving.changed() => if changed.is_err() { return },
                () = sleep(PERIOD) => {}
            }
        }
    }

    /// The end of this replica's term, if it leads and knows what the last leader has reserved.
    fn leads_until(&self) -> Option<Instant> {
        match *self.leader.borrow() {
            Leader::Us { term, until } if Instant::now() < until && *self.serving.borrow() == term => Some(until),
            Leader::Us { .. } | Leader::Other { .. } | Leader::Nobody => None,
        }
    }

    /// Searches on a thread of its own: those of the runtime answer calls.
    async fn steps(&self, most: usize, busy: &HashSet<Arc<str>>) -> (Vec<Step>, bool) {
        let index = Arc::clone(&self.index);
        let busy = busy.clone();
        let search = move || index.plan(most, SEARCH, &busy, Instant::now());
        tokio::task::spawn_blocking(search).await.unwrap_or_else(|error| {
            tracing::error!(%error, "planning failed: waiting pods are planned at the next change");
            (Vec::new(), false)
        })
    }
}

// === impl Writer ===

impl Writer {
    async fn write(&self, step: &Step, until: Instant) {
        let written = match step {
            Step::Place { demand, planned } => self.place(demand, planned, until).await,
            Step::Evict { demand, node, victims } => match self.evict((demand, node), victims, until).await {
                Err((victim, failure)) if failure.is_by_budget() => {
                    self.index.kept_by_budget(step, victim, Instant::now());
                    return;
                }
                Err((victim, failure)) => {
                    self.index.spare(victim, Instant::now());
                    Err(failure)
                }
                Ok(()) => Ok(()),
            },
            Step::LetGo { uid, namespace, name } => {
                let pods = Api::namespaced(self.client.clone(), namespace);
                let change = json!({ "metadata": { "uid": &**uid }, "spec": without_gate() });
                self.patch(&pods, name, None, &change, until).await.map(drop)
            }
            Step::Withdraw { demand } => {
                let pods = Api::namespaced(self.client.clone(), &demand.namespace);
                let status = status(None, "False", "NotScheduled", NOT_SCHEDULED);
                let change = json!({ "metadata": { "uid": &*demand.uid }, "status": status });
                self.patch(&pods, &demand.name, Some("status"), &change, until).await.map(drop)
            }
        };
        match written {
            Ok(()) => {
                match step {
                    Step::Place { demand, .. } => self.index.nominated(&demand.uid, Instant::now()),
                    Step::LetGo { uid, .. } => self.index.ungated(uid),
                    Step::Withdraw { demand } => self.index.withdrawn(&demand.uid, Instant::now()),
                    Step::Evict { .. } => {}
                }
                self.requests.succeeded(REQUEST);
            }
            Err(failure) => {
                let is_unknown = matches!(failure, Failure::Unknown(_));
                let (Failure::Refused(error) | Failure::Unknown(error)) = failure;
                // The watch shows soon that the pod is gone or has changed.
                if !is_outdated(&error) {
                    self.requests.failed(REQUEST, &error, PAUSE);
                }
                // A pod that may have its nomination keeps its GPUs until the watch shows more, or until they expire.
                if !(is_unknown && matches!(step, Step::Place { .. })) {
                    self.index.refused(step, Instant::now());
                }
            }
        }
    }

    /// Nominates the planned node, and removes the gate.
    async fn place(&self, demand: &Demand, planned: &Planned, until: Instant) -> Result<(), Failure> {
        let Demand { uid, namespace, name, scheduling, .. } = demand;
        let pods = Api::namespaced(self.client.clone(), namespace);
        let uid = &**uid;
        let plan = json!({ PLANNED: annotation::encode(planned) });
        let says = format!("GPUs are reserved on node {}", planned.node);
        let status = status(Some(&planned.node), "True", "Planned", &says);
        let nomination = json!({ "metadata": { "uid": uid }, "status": status });
        if !scheduling.has_our_gate() {
            // Its scheduler may bind it as soon as it sees the nomination.
            let change = json!({ "metadata": { "uid": uid, "annotations": plan } });
            self.patch(&pods, name, None, &change, until).await?;
            return self.patch(&pods, name, Some("status"), &nomination, until).await.map(drop);
        }
        let mut attempt = 1;
        loop {
            let nominated = self.patch(&pods, name, Some("status"), &nomination, until).await;
            // Made or not, no scheduler has seen it, and the next one replaces it.
            let nominated = nominated.map_err(|failure| match failure {
                Failure::Unknown(error @ kube::Error::Api(_)) => Failure::Refused(error),
                failure => failure,
            })?;
            let metadata = json!({ "uid": uid, "resourceVersion": nominated.resource_version(), "annotations": plan });
            let change = json!({ "metadata": metadata, "spec": without_gate() });
            match self.patch(&pods, name, None, &change, until).await {
                Err(Failure::Refused(kube::Error::Api(status))) if status.code == 409 && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                written => return written.map(drop),
            }
        }
    }

    /// Evicts pods, each by its UID, if the API server would let all of them be evicted: one that a PodDisruptionBudget keeps
    /// would leave no room, and the others would have ended for nothing.
    async fn evict<'v>(
        &self,
        (demand, node): (&Demand, &str),
        victims: &'v [Victim],
        until: Instant,
    ) -> Result<(), (&'v Arc<str>, Failure)> {
        let tries = victims.iter().map(|victim| (victim, true));
        for (at, (Victim { uid, namespace, name }, dry_run)) in
            tries.chain(victims.iter().map(|victim| (victim, false))).enumerate()
        {
            if at == victims.len() {
                let pod = format!("{}/{}", demand.namespace, demand.name);
                info!(pod, node, "evicting {} pods of lower priority", victims.len());
            }
            let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
            let params = PostParams { dry_run, ..PostParams::default() };
            let eviction = eviction(name, uid);
            let evicted = pods.create_subresource::<_, Status>("eviction", name, &params, &eviction);
            match answer(evicted, until).await {
                // Gone, or another pod of this name: its room is free, or soon will be.
                Err(Failure::Refused(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
                evicted => evicted.map(drop).map_err(|failure| (uid, failure))?,
            }
        }
        Ok(())
    }

    async fn patch(
        &self,
        pods: &Api<Pod>,
        name: &str,
        subresource: Option<&str>,
        change: &Value,
        until: Instant,
    ) -> Result<Pod, Failure> {
        let params = PatchParams::default();
        let change = Patch::Strategic(change);
        let request = async {
            match subresource {
                Some(subresource) => pods.patch_subresource(subresource, name, &params, &change).await,
                None => pods.patch(name, &params, &change).await,
            }
        };
        answer(request, until).await
    }
}

// === impl Failure ===

impl Failure {
    /// Whether a PodDisruptionBudget keeps a pod from being evicted, or two do, which the API server can't serve (`EvictionREST`).
    fn is_by_budget(&self) -> bool {
        let (Self::Refused(error) | Self::Unknown(error)) = self;
        let kube::Error::Api(status) = error else { return false };
        let Status { code, details, message, .. } = &**status;
        let causes = details.iter().flat_map(|details| &details.causes);
        match code {
            429 => causes.into_iter().any(|cause| cause.reason == "DisruptionBudget"),
            500 => message.contains("PodDisruptionBudget"),
            _ => false,
        }
    }
}

/// The API server's answer; nothing is asked or waited for after `until`.
async fn answer<T>(request: impl Future<Output = kube::Result<T>>, until: Instant) -> Result<T, Failure> {
    let began = Instant::now();
    let left = until.saturating_duration_since(began);
    if left.is_zero() {
        return Err(Failure::Unknown(unanswered(left)));
    }
    match timeout(PATIENCE.min(left), request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) => {
            Err(Failure::Refused(kube::Error::Api(status)))
        }
        Ok(Err(error)) => Err(Failure::Unknown(error)),
        Err(_elapsed) => Err(Failure::Unknown(unanswered(began.elapsed()))),
    }
}

/// Whether the API server has refused a change of a pod because it is gone, has changed, or has left its name to another: the UID
/// of an object can't be changed (`ValidateObjectMetaAccessorUpdate`).
pub fn is_outdated(error: &kube::Error) -> bool {
    let is_of_another = |message: &str| message.contains("metadata.uid: ");
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409)
        || status.code == 422 && is_of_another(&status.message))
}

/// A pod's spec without our gate, as a strategic merge patch.
fn without_gate() -> Value {
    json!({ "schedulingGates": [{ "$patch": "delete", "name": GATE }] })
}

/// An eviction of the pod of this UID. (`Api::evict` of kube 5.0 writes `delete_options`, which the API server doesn't know.)
fn eviction(name: &str, uid: &str) -> Eviction {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    Eviction {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        delete_options: Some(DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() }),
    }
}

/// Nominated node and condition of a pod's status.
fn status(node: Option<&str>, placed: &str, reason: &str, message: &str) -> Value {
    json!({ "nominatedNodeName": node, "conditions": [placed_condition(placed, reason, message)] })
}

/// Condition of a pod: whether GPUs are reserved for it.
pub fn placed_condition(status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": condition::PLACED,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": Timestamp::now().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_names_the_pod_by_its_uid() {
        let text = serde_json::to_value(eviction("a", "uid-a")).expect("JSON");
        assert_eq!(text["deleteOptions"], json!({ "preconditions": { "uid": "uid-a" } }));
    }
}
