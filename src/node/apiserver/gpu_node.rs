//! Writes the `GpuNode`.

mod pruned;
pub(super) mod status;
mod utilization;

use std::sync::Arc;

use divvy_api::gpunode::{GpuNode, GpuNodeSpec, GpuNodeStatus};
use divvy_api::installation::DAEMON;
use divvy_runtime::api_server::ApiServer;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::pruned::Pruned;
use self::utilization::UtilizationWrites;
use super::PublishSettings;
use super::attempts::Attempts;
use super::latest::{self, Cached, Latest};
use super::node::NodeView;
use super::view::View;

const CREATE_GPU_NODE: &str = "create gpunodes";
const PATCH_GPU_NODE: &str = "patch gpunodes/status";

/// Writes the `GpuNode`, and remembers what it wrote.
pub(super) struct GpuNodeWriter {
    settings: Arc<PublishSettings>,
    gpu_nodes: Api<GpuNode>,
    pub(super) latest: Latest<GpuNode>,
    attempts: Attempts,
    pruned: Pruned,
    utilization_writes: UtilizationWrites,
}

// === impl GpuNodeWriter ===

impl GpuNodeWriter {
    pub(super) fn new(settings: Arc<PublishSettings>, api_server: &ApiServer, stop: &CancellationToken) -> Self {
        let gpu_nodes = Api::all(api_server.client.clone());
        Self {
            latest: latest::watch(gpu_nodes.clone(), "gpunodes", &settings.node_name, &api_server.requests, stop),
            settings,
            gpu_nodes,
            attempts: Attempts::new(api_server.requests.clone()),
            pruned: Pruned::default(),
            utilization_writes: UtilizationWrites::default(),
        }
    }

    /// Makes the `GpuNode` of this Node show the view; returns whether it does. `last`: the view of the last round.
    pub(super) async fn write(&mut self, view: &View, last: &View, node: &NodeView) -> bool {
        let there = match self.latest.get() {
            Cached::Present(there) => there,
            Cached::Unknown => return false,
            Cached::Gone => {
                self.create(node).await;
                return false;
            }
        };
        let shown = there.status.as_ref();
        let mut status = status::status(view, &self.settings, shown, Timestamp::now());
        if self.settings.utilization {
            utilization::show(&mut status, &view.inventory.node);
        }
        // A daemon that ends has few seconds to say so: a pause after overload would outlast it.
        if view.draining && !last.draining {
            self.attempts.forget(PATCH_GPU_NODE);
        }
        let differs = shown != Some(&status) && !self.pruned.explains(&status, shown);
        if differs && self.utilization_writes.are_due(&status, shown, Instant::now()) {
            return self.patch(status).await;
        }
        true
    }

    /// Creates the object, owned by its Node; takes the one that is there if there is one.
    async fn create(&mut self, node: &NodeView) {
        let Self { settings, gpu_nodes, attempts, latest, .. } = self;
        let name = &settings.node_name;
        let mut object = GpuNode::new(name, GpuNodeSpec::default());
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: name.clone(),
            uid: node.uid().unwrap_or_default(),
            ..OwnerReference::default()
        }]);
        let made = async {
            match gpu_nodes.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => gpu_nodes.get(name).await,
                made => made,
            }
        };
        if let Some(made) = attempts.make(CREATE_GPU_NODE, made).await {
            latest.answered(Cached::Present(Box::new(made)));
        }
    }

    /// Writes the status; returns whether the API server has taken it.
    async fn patch(&mut self, status: GpuNodeStatus) -> bool {
        let Self { settings, gpu_nodes, attempts, latest, pruned, .. } = self;
        let written = attempts.make(PATCH_GPU_NODE, patch_status(gpu_nodes, &settings.node_name, &status)).await;
        let Some(answer) = written else { return false };
        // Otherwise it was deleted a moment ago: the next round makes it again.
        let is_there = matches!(answer, Cached::Present(_));
        if let Cached::Present(object) = &answer
            && let Some(kept) = &object.status
        {
            pruned.compare(status, kept.clone());
        }
        latest.answered(answer);
        is_there
    }
}

/// Writes the status and returns the object as the API server stored it; `Unknown` if its kind isn't defined now.
///
/// By merge patch: every field of the status is written each time, and a definition older than the daemon prunes what it
/// doesn't declare, where server-side apply answers 500 (`field not declared in schema`, 1.36.3) and writes nothing.
async fn patch_status(gpu_nodes: &Api<GpuNode>, name: &str, status: &GpuNodeStatus) -> kube::Result<Cached<GpuNode>> {
    let mut patch = json!({ "status": status });
    // A merge patch keeps what it doesn't name.
    for field in GpuNodeStatus::OPTIONAL {
        patch["status"].as_object_mut().expect("a struct is an object").entry(field).or_insert(Value::Null);
    }
    let params = PatchParams { field_manager: Some(DAEMON.to_owned()), ..PatchParams::default() };
    match gpu_nodes.patch_status(name, &params, &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            let is_named = status.details.is_some_and(|details| !details.name.is_empty());
            Ok(if is_named { Cached::Gone } else { Cached::Unknown })
        }
        written => written.map(|written| Cached::Present(Box::new(written))),
    }
}
