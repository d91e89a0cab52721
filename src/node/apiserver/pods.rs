//! Writes the `cards` annotation of pods.

pub(super) mod annotation;

use std::collections::{BTreeMap, HashMap, HashSet};

use divvy_api::Tier;
use divvy_api::annotation::{Cards, encode};
use divvy_api::names::annotation::CARDS;
use divvy_node_core::pod::PodRef;
use divvy_runtime::api_server::{ApiServer, within_deadline};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use kube::{Api, Client, Resource};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::attempts::{Attempt, Attempts, concerns_one_object};
use super::view::View;
use crate::prompt::Prompts;

const PATCH_PODS: &str = "patch pods/status";

/// Writes the annotations, and remembers what it wrote.
pub(super) struct PodWriter {
    client: Client,
    /// Tier that the node serves.
    tier: Tier,
    attempts: Attempts,
    /// By pod UID.
    annotated: HashMap<String, Annotated>,
}

/// State of one pod's annotation.
#[derive(Default)]
struct Annotated {
    /// Value last written.
    cards: Option<Cards>,
    /// Attempts to write another value, which may be refused for this pod alone.
    attempt: Attempt,
}

/// Metadata of a Pod; code that decodes all of a Pod would take a megabyte.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = Pod)]
struct PodView {
    metadata: ObjectMeta,
}

// === impl PodWriter ===

impl PodWriter {
    pub(super) fn new(tier: Tier, ApiServer { client, requests }: &ApiServer) -> Self {
        Self { client: client.clone(), tier, attempts: Attempts::new(requests.clone()), annotated: HashMap::new() }
    }

    /// Annotates the pods that the view has other cards for. Calls that wait for the Node go first; the next round goes on.
    pub(super) async fn write(&mut self, view: &View, prompts: &Prompts) {
        let live: HashSet<&str> = view.allocations.pods().map(|entry| entry.pod.uid.as_str()).collect();
        self.annotated.retain(|uid, _| live.contains(uid.as_str()));
        let missing: BTreeMap<&str, (&PodRef, Cards)> = annotation::annotations(view, self.tier)
            .filter(|(pod, cards)| !self.is_written(view, pod, cards))
            .map(|(pod, cards)| (pod.uid.as_str(), (pod, cards)))
            .collect();
        for (pod, cards) in missing.into_values() {
            if prompts.are_waiting() {
                return;
            }
            self.annotate(view, pod, cards).await;
        }
    }

    fn is_written(&self, view: &View, pod: &PodRef, cards: &Cards) -> bool {
        match self.annotated.get(&pod.uid).and_then(|known| known.cards.as_ref()) {
            Some(written) => written == cards,
            None => annotation::is_listed(view, pod, cards),
        }
    }

    async fn annotate(&mut self, view: &View, pod: &PodRef, cards: Cards) {
        let annotated = self.annotated.entry(pod.uid.clone()).or_default();
        if !annotated.attempt.is_due() || !self.attempts.are_due(PATCH_PODS) {
            return;
        }
        let request = format!("{PATCH_PODS} of {}/{}", pod.namespace, pod.name);
        let mut annotations = annotation::of_dialect(view, pod, Timestamp::now());
        annotations.insert(CARDS.to_owned(), encode(&cards));
        match within_deadline(patch(&self.client, pod, &annotations)).await {
            Err(error) if concerns_one_object(&error) => {
                self.attempts.requests().failed(&request, &error, annotated.attempt.failed(&error));
            }
            Err(error) => self.attempts.failed(PATCH_PODS, &error),
            Ok(()) => {
                *annotated = Annotated { cards: Some(cards), attempt: Attempt::default() };
                self.attempts.succeeded(PATCH_PODS);
                self.attempts.requests().succeeded(&request);
            }
        }
    }
}

/// A pod that is gone, or has given its name to another, needs no annotation.
async fn patch(client: &Client, pod: &PodRef, annotations: &BTreeMap<String, String>) -> kube::Result<()> {
    let pods: Api<PodView> = Api::namespaced(client.clone(), &pod.namespace);
    let patch = json!({ "metadata": { "uid": pod.uid, "annotations": annotations } });
    match pods.patch_status(&pod.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || is_another(&status) => Ok(()),
        written => written.map(drop),
    }
}

/// Whether an object of that name exists, but another one: a UID in a patch is a precondition (`storage.Preconditions`), and
/// 1.36.3 says that it can't be changed.
fn is_another(status: &Status) -> bool {
    let immutable = status.code == 422 && status.message.contains("metadata.uid");
    immutable || (status.is_conflict() && status.message.contains("UID in precondition"))
}
