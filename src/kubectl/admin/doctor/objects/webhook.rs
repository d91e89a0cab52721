//! What the API server sends to the webhook, and what the webhook's replicas answer.

use std::ops::Add as _;

use divvy_api::installation::{WEBHOOK, WEBHOOK_METRICS_PORT, pods_of};
use divvy_index::pod::PodView;
use k8s_openapi::ByteString;
use kube::api::ListParams;
use serde::Deserialize;

use super::{Fact, Reader};
use crate::cluster::Refusal;

/// A webhook configuration of either kind.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Configuration {
    #[serde(default)]
    pub(crate) webhooks: Vec<Webhook>,
}

/// A webhook of a configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Webhook {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) client_config: ClientConfig,
    #[serde(default)]
    pub(crate) failure_policy: String,
    #[serde(default)]
    pub(crate) match_conditions: Vec<MatchCondition>,
}

/// CEL that the API server evaluates before it calls.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MatchCondition {
    pub(crate) name: String,
    pub(crate) expression: String,
}

/// Certificate authorities that the API server trusts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientConfig {
    pub(crate) ca_bundle: Option<ByteString>,
}

/// A pod of the webhook, and its answers.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) pod: String,
    pub(crate) readyz: Result<(), String>,
    /// Calls of the scheduler that it counts; `None` if it can't be asked.
    pub(crate) calls: Option<f64>,
}

const CALLS: &str = "divvy_extender_calls_total";

// === impl Reader ===

impl Reader<'_> {
    /// The webhook's configuration of this kind.
    pub(super) async fn webhooks(&self, kind: &str) -> Fact<Option<Configuration>> {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{WEBHOOK}");
        self.cluster.find_at(&path).await
    }

    /// Pods of the webhook, each asked how it is.
    pub(super) async fn replicas(&self) -> Fact<Vec<Replica>> {
        let Self { cluster, namespace, .. } = self;
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let selected = ListParams::default().labels(&pods_of(WEBHOOK));
        let mut replicas = Vec::new();
        for pod in cluster.list_at::<PodView>(&pods, selected).await?.into_iter().filter(|pod| !pod.ended) {
            let proxy = format!("{pods}/http:{}:{WEBHOOK_METRICS_PORT}/proxy", pod.name);
            let readyz = match cluster.text(&format!("{proxy}/readyz")).await {
                Ok(_) => Ok(()),
                Err(forbidden @ Refusal::Forbidden(_)) => return Err(forbidden),
                Err(Refusal::Other { message, .. }) => Err(message),
                Err(Refusal::UnknownKind) => Err(format!("it serves no /readyz on port {WEBHOOK_METRICS_PORT}")),
                Err(refused) => Err(refused.to_string()),
            };
            let calls = cluster.text(&format!("{proxy}/metrics")).await.ok().map(|metrics| sum(&metrics, CALLS));
            replicas.push(Replica { pod: pod.name, readyz, calls });
        }
        Ok(replicas)
    }
}

/// Calls of the scheduler that the replicas count; `None` if none of them can be asked.
pub(crate) fn calls(replicas: &Fact<Vec<Replica>>) -> Option<f64> {
    let calls = replicas.as_ref().ok()?.iter().filter_map(|replica| replica.calls);
    calls.reduce(f64::add)
}

/// The sum over all labels of a counter in Prometheus' text format.
pub(crate) fn sum(metrics: &str, counter: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(counter).filter(|rest| rest.starts_with(['{', ' ']))?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    };
    metrics.lines().filter_map(value).sum()
}
