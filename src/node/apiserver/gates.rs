//! Takes the webhook's scheduling gate from pods that it would keep waiting for ever.

use divvy_api::names::GATE;
use divvy_runtime::api_server::pages::Pages;
use divvy_runtime::api_server::within_deadline;
use divvy_runtime::list::Each;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Pods that can have a gate.
const UNBOUND: &str = "spec.nodeName=";

/// What became of the pods that had the gate.
#[derive(Debug, Default)]
pub struct OpenedGates {
    /// Number of pods that have it no more.
    pub pods: usize,
    /// Namespace and name of those that still have it, with the reason.
    pub failed: Vec<(String, kube::Error)>,
}

#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = Pod)]
struct PodView {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SpecView,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecView {
    #[serde(default)]
    scheduling_gates: Vec<GateView>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct GateView {
    name: String,
}

/// Looks at all pods once and takes the gate from those that have it; other gates stay.
pub async fn open_gates(client: &Client) -> kube::Result<OpenedGates> {
    let mut opened = OpenedGates::default();
    let mut pages = Pages::new("/api/v1/pods", UNBOUND);
    loop {
        let mut gated = Vec::new();
        let take = |pod: PodView| gated.extend(pod.is_gated().then_some(pod.metadata));
        pages.read(client, Each::new(take)).await?;
        for pod in gated {
            open(client, &pod, &mut opened).await;
        }
        if pages.is_at_start() {
            return Ok(opened);
        }
    }
}

async fn open(client: &Client, pod: &ObjectMeta, opened: &mut OpenedGates) {
    let namespace = pod.namespace.as_deref().unwrap_or_default();
    let name = pod.name.as_deref().unwrap_or_default();
    let pods: Api<PodView> = Api::namespaced(client.clone(), namespace);
    let patch = json!({ "spec": { "schedulingGates": [{ "$patch": "delete", "name": GATE }] } });
    match within_deadline(pods.patch(name, &PatchParams::default(), &Patch::Strategic(patch))).await {
        Ok(_) => opened.pods += 1,
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => opened.failed.push((format!("{namespace}/{name}"), error)),
    }
}

// === impl PodView ===

impl PodView {
    fn is_gated(&self) -> bool {
        self.spec.scheduling_gates.iter().any(|gate| gate.name == GATE)
    }
}
