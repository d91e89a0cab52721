//! Reads and writes of this node's objects at the API server.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::time::Duration;

use anyhow::Context as _;
use divvy_api::gpunode::{GpuNode, GpuNodeSpec, GpuNodeStatus};
use divvy_runtime::api_server::{Delays, Requests, watch_object, within_deadline};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::sync::watch::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::events::PendingEvent;
use super::node::NodeView;
use divvy_node_core::pod::PodRef;

/// Field manager of the `GpuNode`'s status in `managedFields`.
const MANAGER: &str = "divvy-node";

/// An object as last received from the API server.
#[derive(Clone, Debug)]
pub(super) enum Cached<K> {
    /// Not received yet.
    Unknown,
    /// No object of that name exists.
    Gone,
    /// The object.
    Present(Box<K>),
}

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

/// An object as last received: by the watch, or as the answer to a write, which the watch shows later. Where only the watch
/// counted, an API server whose watches are late would be written to again and again.
pub(super) struct Latest<K> {
    watched: Receiver<Cached<K>>,
    answer: Option<Box<K>>,
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

/// Follows one object until `stop`.
pub(super) fn watch<K>(
    api: Api<K>,
    resource: &'static str,
    name: &str,
    requests: &Requests,
    stop: &CancellationToken,
) -> Latest<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (sender, receiver) = tokio::sync::watch::channel(Cached::Unknown);
    let objects = watch_object(api, resource, name, requests.clone()).take_until(stop.clone().cancelled_owned());
    tokio::spawn(objects.for_each(move |object| {
        sender.send_replace(object.map_or(Cached::Gone, |object| Cached::Present(Box::new(object))));
        std::future::ready(())
    }));
    Latest { watched: receiver, answer: None }
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

// === impl Latest ===

impl<K: Clone> Latest<K> {
    /// Waits until the watch shows something new.
    pub(super) async fn changed(&mut self) -> Result<(), RecvError> {
        self.watched.changed().await?;
        self.answer = None;
        Ok(())
    }

    /// The object as it is now, as far as known.
    pub(super) fn get(&mut self) -> Cached<K> {
        if self.watched.has_changed().unwrap_or_default() {
            self.answer = None;
        }
        let watched = self.watched.borrow_and_update();
        self.answer.as_ref().map_or_else(|| watched.clone(), |answer| Cached::Present(answer.clone()))
    }

    /// Takes over the answer to a write.
    pub(super) fn answered(&mut self, answer: Option<K>) {
        if let Some(object) = answer {
            self.answer = Some(Box::new(object));
        }
    }
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

    /// Writes the status and returns the object as the API server stored it; `None` if it is gone.
    ///
    /// By merge patch: every field of the status is written each time, and a definition older than the daemon prunes what it
    /// doesn't declare, where server-side apply answers 500 (`field not declared in schema`, 1.36.3) and writes nothing.
    pub(super) async fn write_gpu_node(&self, status: &GpuNodeStatus) -> kube::Result<Option<GpuNode>> {
        let patch = json!({ "status": status });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match self.gpu_nodes.patch_status(&self.name, &params, &Patch::Merge(patch)).await {
            // Deleted a moment ago: the watch will say so, and then it is made again.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            written => written.map(Some),
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
