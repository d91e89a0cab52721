//! Wake-ups of pods that wait for a release.
//!
//! kube-scheduler tries a pod again that the extender has refused when something changes that may matter, at the latest after five
//! minutes, and it doesn't follow `GpuNode`s. A Node's annotation is such a change (`NodeSchedulingPropertiesChange` of
//! `pkg/scheduler/framework`), for all waiting pods, whichever node it is. The leader writes it, after it has taken in the report
//! of the release: by what it answers then, the pod fits.

use std::sync::Arc;
use std::time::Duration;

use divvy_api::names::annotation::GENERATION;
use divvy_index::Index;
use divvy_runtime::api_server::{ApiServer, Requests, within_deadline};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tracing::debug;

/// Wakes waiting pods.
pub struct WakeUps {
    index: Arc<Index>,
    api: Api<Node>,
    requests: Requests,
}

/// As the log of failed requests names it.
const REQUEST: &str = "patch nodes (wake-ups)";
/// Between two looks for a release.
const LOOK: Duration = Duration::from_millis(100);
/// Shortest time between two writes: each has the scheduler try all waiting pods.
const PAUSE: Duration = Duration::from_secs(1);

// === impl WakeUps ===

impl WakeUps {
    /// Prepares to wake pods that wait by this index.
    pub fn new(ApiServer { client, requests }: ApiServer, index: Arc<Index>) -> Self {
        Self { index, api: Api::all(client), requests }
    }

    /// Wakes pods while `leads`, for ever.
    pub async fn run(self, leads: impl Fn() -> bool) {
        let mut due = None;
        loop {
            due = self.index.take_freed().or(due);
            let Some(name) = due.clone().filter(|_| leads()) else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            match self.write(&name).await {
                Ok(()) => {
                    self.requests.succeeded(REQUEST);
                    due = None;
                }
                // Its Node is gone, and with it what was free there.
                Err(kube::Error::Api(status)) if status.code == 404 => due = None,
                Err(error) => self.requests.failed(REQUEST, &error, PAUSE),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn write(&self, name: &str) -> kube::Result<()> {
        let now = Timestamp::now().as_millisecond().to_string();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { GENERATION: now } } }));
        within_deadline(self.api.patch(name, &PatchParams::default(), &patch)).await?;
        debug!(node = name, "waiting pods are to be tried again");
        Ok(())
    }
}
