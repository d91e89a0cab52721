//! divvy-webhook as it is installed: two replicas behind a Service, known to the API server by the webhook configurations
//! and to the scheduler as its extender.
//!
//! ```text
//! API server ──reviews─▶ Service divvy-webhook ──▶ divvy-webhook-a, divvy-webhook-b
//! scheduler ──filter, prioritize, bind─▶ Service divvy-extender ──▶ the leader, by its EndpointSlice
//! API server ◀──watches, Lease, EndpointSlice, Bindings── both replicas
//! ```

mod replica;
mod service;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use divvy_api::ResourceNames;
use divvy_systems::{Dialect, match_conditions};
use hyper::StatusCode;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use self::replica::Replica;
use self::service::{Endpoints, Service};
use crate::cluster::{PATIENCE, SYSTEM};
use crate::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::install::{WEBHOOK_CONFIGURATIONS, WEBHOOK_SERVICE};
use divvy_testkit::binaries::Binaries;
use divvy_testkit::pages::page;
use divvy_testkit::pods::{GPU, NAMESPACE};
use fake_apiserver::endpoints::first_endpoint;
use fake_apiserver::https::{Https, Trust};
use fake_apiserver::{ApiServer, View};
use fake_scheduler::extender::Extender;

/// Both replicas, and the way to them.
pub struct Webhook {
    server: Arc<ApiServer>,
    replicas: [Replica; 2],
    /// The Service of reviews, as long as this lives.
    _service: Service,
    extender: Service,
    endpoints: Endpoints,
    trust: Trust,
    /// What replicas counted that were killed since.
    before: Predictions,
}

/// How a replica ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// The one that leads, and it stays away until the other one does.
    LeaderForLong,
    /// The one that doesn't lead.
    Follower,
    /// The one that leads; it is back before its Lease has run out.
    Leader,
}

/// Reservations by what became of them, as `divvy_reservation_outcomes_total` counts them.
pub type Predictions = BTreeMap<String, u64>;

/// Name of the Service, the configurations and the Lease.
const NAME: &str = "divvy-webhook";
/// What a scheduler's configuration says of the extender.
const SCHEDULER: &str = include_str!("../../deploy/scheduler/kube-scheduler.yaml");
/// Between two looks at something that is awaited.
const PAUSE: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(5);

// === impl Webhook ===

impl Webhook {
    /// Starts both replicas and has the API server ask them, as soon as they are ready.
    pub async fn start(binaries: &Binaries, control_plane: &ControlPlane, directory: &Path) -> anyhow::Result<Self> {
        let server = Arc::clone(&control_plane.server);
        WEBHOOK_SERVICE.install(&server)?;
        WEBHOOK_CONFIGURATIONS.install(&server)?;
        recognise_dialects(&server)?;
        let endpoints = Endpoints::default();
        let ready = endpoints.clone();
        let service = Service::start(move || ready.now()).await?;
        let slices = Arc::clone(&server);
        let extender = Service::start(move || slices.read(leader).into_iter().collect()).await?;
        server.resolve(SYSTEM, NAME, &[service.address]);
        let start = |name| Replica::start(name, binaries, control_plane, directory);
        let replicas = [start("divvy-webhook-a")?, start("divvy-webhook-b")?];
        let (trust, before) = (Trust::default(), Predictions::new());
        Ok(Self { server, replicas, _service: service, extender, endpoints, trust, before })
    }

    /// Waits until both replicas answer API server and scheduler, and know these nodes.
    pub async fn ready(&mut self, nodes: &[&str]) -> anyhow::Result<()> {
        let authority = tokio::time::timeout(PATIENCE, self.server.wait_for(authority)).await;
        let authority = authority.context("divvy-webhook has put no caBundle into its configurations")?;
        let identity = self.server.read(scheduler_certificate);
        self.trust = Trust { authority, name: Some(format!("{NAME}.{SYSTEM}.svc")), identity };
        let https = Https::new(&self.trust)?;
        for replica in &mut self.replicas {
            let (start, name) = (Instant::now(), replica.name);
            while let Err(why) = replica.ready().await {
                ensure!(start.elapsed() < PATIENCE, "{name} isn't ready: {why}");
                tokio::time::sleep(PAUSE).await;
            }
            self.endpoints.add(replica.address);
        }
        let start = Instant::now();
        while let Err(why) = ready(self.extender.address, &https, nodes).await {
            ensure!(start.elapsed() < PATIENCE, "no replica answers the scheduler: {why:#}");
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// How a scheduler comes here.
    pub fn extender(&self) -> anyhow::Result<Extender> {
        let mut config: Value = serde_saphyr::from_str(SCHEDULER).context("reading kube-scheduler.yaml")?;
        let mut extender: Extender = serde_json::from_value(config["extenders"][0].take())?;
        extender.url_prefix = format!("https://{}", self.extender.address);
        extender.trust = self.trust.clone();
        Ok(extender)
    }

    /// Why a pod waits, in a sentence; nothing if it doesn't, or needn't any more.
    pub async fn explain(&self, pod: &str) -> anyhow::Result<Option<String>> {
        let https = Https::new(&self.trust)?.bearing(ADMIN_TOKEN);
        let leader = self.server.read(holder);
        let replica = self.replicas.iter().find(|replica| Some(replica.name) == leader.as_deref());
        let replica = replica.unwrap_or(&self.replicas[0]);
        let url = format!("https://{}/explain?pod={NAMESPACE}/{pod}", replica.queries);
        let (code, body) = https.post(&url, None, Vec::new(), TIMEOUT).await?;
        ensure!(code == StatusCode::OK, "{url} answers {code}: {}", String::from_utf8_lossy(&body).trim_end());
        let explanation: Value = serde_json::from_slice(&body).with_context(|| format!("reading {url}"))?;
        let waits = explanation["state"]["phase"] == "waiting" && explanation["fitting"] == 0;
        Ok(explanation["verdict"].as_str().filter(|_| waits).map(str::to_owned))
    }

    /// What became of reservations so far, as both replicas count it.
    pub async fn predictions(&self) -> anyhow::Result<Predictions> {
        let mut sums = self.before.clone();
        for replica in &self.replicas {
            add(&mut sums, &predictions(&page(replica.process.pages(), "metrics").await?));
        }
        Ok(sums)
    }

    /// Reservations that their nodes haven't shown yet, as the replica says that knows most.
    pub async fn open_reservations(&self) -> anyhow::Result<u64> {
        let mut most = 0;
        for replica in &self.replicas {
            let text = page(replica.process.pages(), "metrics").await?;
            let open = text.lines().find_map(|line| line.strip_prefix("divvy_reservations "));
            let open = open.and_then(|open| open.trim_end_matches(".0").parse().ok());
            most = most.max(open.context("no divvy_reservations among the metrics")?);
        }
        Ok(most)
    }

    /// Kills a replica a little later (`SIGKILL`), starts it again and waits until it is ready.
    pub async fn kill(&mut self, kill: Kill, after: Duration) -> anyhow::Result<()> {
        let leader = self.server.read(holder);
        let is_meant = |replica: &Replica| (leader.as_deref() == Some(replica.name)) == (kill != Kill::Follower);
        let at = self.replicas.iter().position(is_meant).unwrap_or_default();
        let replica = &mut self.replicas[at];
        tokio::time::sleep(after).await;
        add(&mut self.before, &predictions(&page(replica.process.pages(), "metrics").await?));
        replica.process.kill().await?;
        self.endpoints.remove(replica.address);
        if kill == Kill::LeaderForLong {
            let succeeded = self.server.wait_for(|view| holder(view).filter(|holder| holder != replica.name));
            tokio::time::timeout(PATIENCE, succeeded).await.context("no other replica leads")?;
        }
        replica.process.start_again()?;
        let start = Instant::now();
        while let Err(why) = replica.ready().await {
            ensure!(start.elapsed() < PATIENCE, "{} doesn't come back: {why}", replica.name);
            tokio::time::sleep(PAUSE).await;
        }
        self.endpoints.add(replica.address);
        Ok(())
    }

    /// That a replica ended by itself, if one did.
    pub fn ended(&mut self) -> Result<(), String> {
        self.replicas.iter_mut().try_for_each(|replica| replica.process.ended())
    }

    /// Where the replicas serve their metrics.
    pub fn pages(&self) -> [SocketAddr; 2] {
        self.replicas.each_ref().map(|replica| replica.process.pages())
    }

    /// Where the replicas log to.
    pub fn logs(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.replicas.iter().map(|replica| (replica.name, replica.process.log.as_path()))
    }
}

// === impl Kill ===

impl Kill {
    /// All of them, in the order in which they happen.
    pub const ALL: [Self; 3] = [Self::LeaderForLong, Self::Follower, Self::Leader];

    /// As lines and report name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::LeaderForLong => "leading webhook gone",
            Self::Follower => "other webhook killed",
            Self::Leader => "leading webhook killed",
        }
    }
}

/// Who leads, as the Lease says.
fn holder(view: &View<'_>) -> Option<String> {
    let lease = view.kept("Lease", SYSTEM, NAME)?;
    lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
}

/// Systems whose pods the demo has. HAMi's pods are read as ours, which have the same words: with HAMi's rules for them, half
/// of the demo's own mistakes would be none.
fn dialects() -> Value {
    json!([
        { "name": "nano-gpu", "memoryUnit": "1Gi" }, "elastic-gpu", "gpushare", "gpu-model", "gpu-manager", "volcano",
        "kai", "koordinator", "vgpu-manager", { "name": "time-slicing", "replicas": 4 },
    ])
}

/// Shows the webhook pods of other systems too, as the chart does.
fn recognise_dialects(server: &ApiServer) -> anyhow::Result<()> {
    let dialects: Vec<Dialect> = serde_json::from_value(dialects())?;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        server.edit(kind, "", NAME, |configuration| {
            for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
                let conditions = webhook["name"]
                    .as_str()
                    .and_then(|name| match_conditions(name, &ResourceNames::default(), &dialects));
                webhook["matchConditions"] = json!(conditions);
            }
        })?;
    }
    Ok(())
}

/// The authority of both configurations, once it stands there.
fn authority(view: &View<'_>) -> Option<String> {
    let bundles = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"].map(|kind| {
        let configuration = view.get(kind, "", NAME)?;
        let webhooks = configuration["webhooks"].as_array()?.iter();
        let bundle = |webhook: &Value| serde_json::from_value(webhook["clientConfig"]["caBundle"].clone()).ok();
        webhooks.map(bundle).collect::<Option<Vec<ByteString>>>()
    });
    let [Some(mutating), Some(_)] = bundles else { return None };
    String::from_utf8(mutating.first()?.0.clone()).ok().filter(|authority| !authority.is_empty())
}

/// The scheduler's certificate and its key, as the webhook has issued them.
fn scheduler_certificate(view: &View<'_>) -> Option<(String, String)> {
    let secret = view.kept("Secret", SYSTEM, "divvy-webhook-tls")?;
    let text = |name: &str| {
        let text: ByteString = serde_json::from_value(secret["data"][name].clone()).ok()?;
        String::from_utf8(text.0).ok()
    };
    text("client.crt").zip(text("client.key"))
}

/// Listening address of the replica that the extender's Service leads to.
fn leader(view: &View<'_>) -> Option<SocketAddr> {
    first_endpoint(view.kept("EndpointSlice", SYSTEM, "divvy-extender")?)
}

/// Asks as the scheduler does: only the leader answers, once it knows the cluster.
async fn ready(extender: SocketAddr, https: &Https, nodes: &[&str]) -> anyhow::Result<()> {
    let container = json!({ "name": "main", "resources": { "limits": { GPU: "1" } } });
    let pod = json!({
        "metadata": { "name": "nobody", "namespace": NAMESPACE, "uid": "nobody" }, "spec": { "containers": [container] },
    });
    let question = json!({ "Pod": pod, "Nodes": null, "NodeNames": nodes });
    let url = format!("https://{extender}/filter");
    let (code, body) = https.post(&url, None, question.to_string().into_bytes(), TIMEOUT).await?;
    let text = String::from_utf8_lossy(&body);
    ensure!(code == StatusCode::OK, "{url} answers {code}: {}", text.trim_end());
    let answer: Value = serde_json::from_slice(&body).with_context(|| format!("reading {url}"))?;
    let unfit = ["FailedNodes", "FailedAndUnresolvableNodes"]
        .map(|field| answer[field].as_object().map_or(0, serde_json::Map::len));
    if unfit != [0, 0] || answer["Error"].as_str().is_some_and(|error| !error.is_empty()) {
        bail!("not all nodes are known to take pods: {text}");
    }
    Ok(())
}

/// `divvy_reservation_outcomes_total{outcome="kept"} 7`.
fn predictions(metrics: &str) -> Predictions {
    let lines = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("divvy_reservation_outcomes_total{outcome=\"")?.split_once("\"} "));
    lines.filter_map(|(outcome, count)| Some((outcome.to_owned(), count.parse().ok()?))).collect()
}

fn add(sums: &mut Predictions, more: &Predictions) {
    for (outcome, count) in more {
        *sums.entry(outcome.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_read_from_metrics_and_added_up() {
        let text = "# TYPE divvy_reservation_outcomes counter\ndivvy_reservation_outcomes_total{outcome=\"kept\"} 7\ndivvy_leader 1.0\n";
        let mut sums = predictions(text);
        add(
            &mut sums,
            &predictions(
                "divvy_reservation_outcomes_total{outcome=\"kept\"} 1\ndivvy_reservation_outcomes_total{outcome=\"moved\"} 2",
            ),
        );
        assert_eq!(sums, [("kept".to_owned(), 8), ("moved".to_owned(), 2)].into());
    }
}
