//! Reads and writes of this node's objects at the API server.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::Context as _;
use divvy_api::gpunode::{GpuNode, GpuNodeSpec, GpuNodeStatus};
use divvy_api::installation::DAEMON;
use divvy_runtime::api_server::{Delays, Requests, within_deadline};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::events::PendingEvent;
use super::latest::Cached;
use super::node::NodeView;
use divvy_node_core::pod::PodRef;

/// The objects of one node.
pub(super) struct Cluster {
    pub(super) nodes: Api<NodeView>,
    pub(super) gpu_nodes: Api<GpuNode>,
    name: String,
    client: Client,
    recorder: Recorder,
}

/// Metadata of a Pod; code that decodes all of a Pod would take a megabyte.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = Pod)]
struct PodView {
    metadata: ObjectMeta,
}

/// Attempts to write, by request.
pub(super) struct Attempts {
    requests: Requests,
    by_request: HashMap<&'static str, Attempt>,
}

/// Attempts to write one object: after a failure the next one is delayed.
#[derive(Default)]
pub(super) struct Attempt {
    delays: Delays,
    not_before: Option<Instant>,
}

/// The labels of a node.
pub async fn node_labels(client: Client, name: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let node = find_node(client, name).await?.with_context(|| format!("Node {name} doesn't exist"))?;
    Ok(node.metadata.labels.unwrap_or_default())
}

/// The Node of this name. Listed, because the permission to watch a Node doesn't include the permission to get it.
pub(super) async fn find_node(client: Client, name: &str) -> kube::Result<Option<NodeView>> {
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    Ok(Api::all(client).list(&only).await?.items.pop())
}

/// Whether an object of that name exists, but another one: a UID in a patch is a precondition (`storage.Preconditions`), and
/// 1.36.3 says that it can't be changed.
fn is_another(status: &Status) -> bool {
    let immutable = status.code == 422 && status.message.contains("metadata.uid");
    immutable || (status.is_conflict() && status.message.contains("UID in precondition"))
}

// === impl Cluster ===

impl Cluster {
    pub(super) fn new(client: Client, name: &str) -> Self {
        let reporter = Reporter { controller: "divvy.dev/node".to_owned(), instance: Some(name.to_owned()) };
        Self {
            nodes: Api::all(client.clone()),
            gpu_nodes: Api::all(client.clone()),
            name: name.to_owned(),
            recorder: Recorder::new(client.clone(), reporter),
            client,
        }
    }

    /// Writes amounts, labels and annotations, all through the status.
    pub(super) async fn patch_node(&self, patch: &Value) -> kube::Result<NodeView> {
        self.nodes.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    /// Creates the `GpuNode`, owned by its Node; returns the one that is there if there is one.
    pub(super) async fn create_gpu_node(&self, node: &NodeView) -> kube::Result<GpuNode> {
        let mut object = GpuNode::new(&self.name, GpuNodeSpec::default());
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.name.clone(),
            uid: node.uid().unwrap_or_default(),
            ..OwnerReference::default()
        }]);
        match self.gpu_nodes.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => self.gpu_nodes.get(&self.name).await,
            made => made,
        }
    }

    /// Writes the status and returns the object as the API server stored it; `Unknown` if its kind isn't defined now.
    ///
    /// By merge patch: every field of the status is written each time, and a definition older than the daemon prunes what it
    /// doesn't declare, where server-side apply answers 500 (`field not declared in schema`, 1.36.3) and writes nothing.
    pub(super) async fn write_gpu_node(&self, status: &GpuNodeStatus) -> kube::Result<Cached<GpuNode>> {
        let mut patch = json!({ "status": status });
        // A merge patch keeps what it doesn't name.
        for field in GpuNodeStatus::OPTIONAL {
            patch["status"].as_object_mut().expect("a struct is an object").entry(field).or_insert(Value::Null);
        }
        let params = PatchParams { field_manager: Some(DAEMON.to_owned()), ..PatchParams::default() };
        match self.gpu_nodes.patch_status(&self.name, &params, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let is_named = status.details.is_some_and(|details| !details.name.is_empty());
                Ok(if is_named { Cached::Gone } else { Cached::Unknown })
            }
            written => written.map(|written| Cached::Present(Box::new(written))),
        }
    }

    /// A pod that is gone, or has given its name to another, needs no annotation.
    pub(super) async fn annotate(&self, pod: &PodRef, annotations: &BTreeMap<String, String>) -> kube::Result<()> {
        let pods: Api<PodView> = Api::namespaced(self.client.clone(), &pod.namespace);
        let patch = json!({ "metadata": { "uid": pod.uid, "annotations": annotations } });
        match pods.patch_status(&pod.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() || is_another(&status) => Ok(()),
            written => written.map(drop),
        }
    }

    pub(super) async fn record(&self, event: &PendingEvent, node: &NodeView) -> kube::Result<()> {
        let PendingEvent { pod, card, warning, reason, note } = event;
        let reference = match pod {
            // Events of a Node are found by its name: the kubelet's own carry it as UID too.
            None => ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.name_any()),
                uid: Some(node.name_any()),
                ..ObjectReference::default()
            },
            Some(PodRef { uid, namespace, name }) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                uid: Some(uid.clone()),
                ..ObjectReference::default()
            },
        };
        let type_ = if *warning { EventType::Warning } else { EventType::Normal };
        let event = Event {
            type_,
            reason: (*reason).to_owned(),
            note: Some(note.chars().take(1000).collect()),
            action: (*reason).to_owned(),
            // Events that differ in their notes alone are taken for one that happened again.
            secondary: card.as_ref().map(|card| ObjectReference {
                kind: Some("GPU".to_owned()),
                name: Some(card.to_string()),
                ..ObjectReference::default()
            }),
        };
        self.recorder.publish(&event, &reference).await
    }
}

// === impl Attempts ===

impl Attempts {
    pub(super) fn new(requests: Requests) -> Self {
        Self { requests, by_request: HashMap::new() }
    }

    /// The log of failed requests.
    pub(super) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Whether none of these requests failed a moment ago.
    pub(super) fn are_due(&self, request: &'static str) -> bool {
        self.by_request.get(request).is_none_or(Attempt::is_due)
    }

    pub(super) fn succeeded(&mut self, request: &'static str) {
        self.by_request.remove(request);
        self.requests.succeeded(request);
    }

    /// Ends the pause after failed attempts.
    pub(super) fn forget(&mut self, request: &'static str) {
        self.by_request.remove(request);
    }

    pub(super) fn failed(&mut self, request: &'static str, error: &kube::Error) {
        let pause = self.by_request.entry(request).or_default().failed(error);
        self.requests.failed(request, error, pause);
    }

    /// Makes a write unless an earlier one of its kind failed a moment ago. Returns the response if it was made and succeeded.
    pub(super) async fn make<T>(
        &mut self,
        request: &'static str,
        write: impl Future<Output = kube::Result<T>>,
    ) -> Option<T> {
        if !self.are_due(request) {
            return None;
        }
        match within_deadline(write).await {
            Ok(answer) => {
                self.succeeded(request);
                Some(answer)
            }
            Err(error) => {
                self.failed(request, &error);
                None
            }
        }
    }
}

// === impl Attempt ===

impl Attempt {
    /// Whether no earlier one failed a moment ago.
    pub(super) fn is_due(&self) -> bool {
        self.not_before.is_none_or(|time| time <= Instant::now())
    }

    /// Counts a failure. Returns the pause until the next attempt.
    pub(super) fn failed(&mut self, error: &kube::Error) -> Duration {
        let pause = self.delays.after(error);
        self.not_before = Some(Instant::now() + pause);
        pause
    }
}

/// Whether the API server has answered, and refused as far as known this object alone.
pub(super) fn concerns_one_object(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 404 | 409 | 422))
}
