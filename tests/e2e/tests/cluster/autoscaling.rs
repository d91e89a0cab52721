//! A HorizontalPodAutoscaler that scales by what pods use of their GPUs: kube-controller-manager asks prometheus-adapter, which
//! asks Prometheus by the rules of deploy/monitoring. `KUBE_BIN_DIR` has them as `prometheus` (Debian's) and as
//! `prometheus-adapter`, built from its Go module; without these the scenario is skipped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::{AggregatedApi, Cluster};
use divvy_e2e::files::free_address;
use divvy_e2e::node::NODE;
use divvy_e2e::pages::page;
use divvy_e2e::program::Program;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::guests::{self, Guests};

const EXAMPLE: &str = include_str!("../../../../deploy/examples/autoscaling.yaml");
const RULES: &str = include_str!("../../../../deploy/monitoring/prometheus-adapter.yaml");
const PROMETHEUS: &str = "prometheus";
const ADAPTER: &str = "prometheus-adapter";
/// As the adapter's chart registers it.
const API: AggregatedApi = AggregatedApi {
    name: "v1beta1.custom.metrics.k8s.io",
    namespace: "default",
    service: ADAPTER,
    port_name: "https",
    port: 443,
};
const NAME: &str = "infer";
const GIB: u64 = 4;
const CORES: u32 = 20;
const REPLICAS: u64 = 3;
const METRICS: &str = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default";
/// The autoscaler looks every 15 s, and a rate over two minutes takes as long to fall.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the autoscaler's metrics come from.
struct Monitoring {
    prometheus: Program,
    adapter: Program,
    listening: AbortHandle,
}

/// Replicas come while the pods' programs work, and go when they rest. All programs are those of a cluster, with their defaults;
/// of the example the target alone is scaled.
pub(crate) async fn follows_the_use_of_gpus(cluster: &mut Cluster) -> anyhow::Result<()> {
    let [prometheus, adapter] = [PROMETHEUS, ADAPTER].map(|name| cluster.given(name));
    let Some((prometheus, adapter)) = prometheus.zip(adapter) else {
        println!("  skipped: KUBE_BIN_DIR has no {PROMETHEUS} with {ADAPTER}");
        return Ok(());
    };
    let guests = Guests::install(cluster).await?;
    let library = guests::library().await?;
    let keys = json!({"tier": "shim", "libdivvyPath": library, "deviceListStrategy": "envvar"});
    cluster.restart_daemon(&keys).await?;
    let monitoring = start(cluster, prometheus, adapter).await?;
    create(cluster, deployment(&guests)?).await?;
    create(cluster, autoscaler()?).await?;
    let scaled = scaled(cluster, &guests).await;
    for object in [format!("hpa/{NAME}"), format!("deployment/{NAME}")] {
        cluster.kubectl.run(&["delete", &object, "--cascade=foreground"]).await?;
    }
    stop(cluster, monitoring).await?;
    scaled?;
    cluster.renew().await
}

async fn scaled(cluster: &mut Cluster, guests: &Guests) -> anyhow::Result<()> {
    replicas(cluster, REPLICAS).await.context("while they work")?;
    cluster.all_running(usize::try_from(REPLICAS)?).await?;
    for metric in ["gpu_memory_used_bytes", "gpu_memory_used_ratio", "gpu_compute_used", "gpu_compute_used_ratio"] {
        let items = all_pods(cluster, metric).await?;
        let shown: Vec<String> = items.iter().map(|item| item["value"].to_string()).collect();
        println!("  {metric} of {} pods: {}", items.len(), shown.join(", "));
    }
    // They take all of their memory at once; contexts are in it.
    let full = all_pods(cluster, "gpu_memory_used_ratio").await?;
    ensure!(full.iter().all(|item| item["value"] == "1"), "{full:?}");

    guests.rest(true)?;
    replicas(cluster, 1).await.context("while they rest")?;
    println!("{}", cluster.kubectl.run(&["describe", "hpa", NAME]).await?);
    guests.rest(false)
}

/// Starts Prometheus, which scrapes the daemon, and the adapter, which kube-apiserver calls.
async fn start(cluster: &mut Cluster, prometheus: PathBuf, adapter: PathBuf) -> anyhow::Result<Monitoring> {
    let [asked, served] = [free_address()?, free_address()?];
    let mut prometheus = prometheus_of(cluster, prometheus, asked)?;
    prometheus.start()?;
    cluster
        .until("Prometheus that is ready", PATIENCE, async |_| {
            let said = page(asked, "-/ready").await?;
            ensure!(said.contains("Ready"), "{said}");
            Ok(Some(()))
        })
        .await?;
    let mut adapter = adapter_of(cluster, adapter, asked, served)?;
    adapter.start()?;
    for object in registered() {
        create(cluster, object).await?;
    }
    let listening = cluster.serve_api(API, vec![served]).await?;
    Ok(Monitoring { prometheus, adapter, listening })
}

async fn stop(cluster: &Cluster, monitoring: Monitoring) -> anyhow::Result<()> {
    let Monitoring { mut prometheus, mut adapter, listening } = monitoring;
    cluster.remove_api(API, &listening).await?;
    cluster.kubectl.run(&["delete", "service", ADAPTER]).await?;
    adapter.kill().await?;
    prometheus.kill().await
}

/// A Prometheus that scrapes the daemon as deploy/monitoring says.
fn prometheus_of(cluster: &Cluster, path: PathBuf, address: SocketAddr) -> anyhow::Result<Program> {
    let target = json!({"targets": [cluster.daemon.address], "labels": {"node": NODE}});
    let config = json!({
        "global": {"scrape_interval": "5s"},
        "scrape_configs": [{"job_name": "divvy", "honor_labels": true, "static_configs": [target]}],
    });
    let config = cluster.files.write("prometheus.yaml", config.to_string())?;
    let args = vec![
        format!("--config.file={}", config.display()),
        format!("--web.listen-address={address}"),
        format!("--storage.tsdb.path={}", cluster.files.directory("prometheus")?.display()),
    ];
    Ok(Program::new(PROMETHEUS, path, args, &cluster.files.logs()))
}

/// The adapter with our rules, for an administrator: what it may do in a cluster is its own manifests' to say.
fn adapter_of(cluster: &Cluster, path: PathBuf, asked: SocketAddr, served: SocketAddr) -> anyhow::Result<Program> {
    let rules = cluster.files.write("prometheus-adapter.yaml", RULES)?;
    let kubeconfig = cluster.kubectl.kubeconfig().display();
    let args = vec![
        format!("--config={}", rules.display()),
        format!("--prometheus-url=http://{asked}/"),
        // Series that come later are found soon.
        "--metrics-relist-interval=5s".to_owned(),
        "--metrics-max-age=5m".to_owned(),
        format!("--bind-address={}", served.ip()),
        format!("--secure-port={}", served.port()),
        format!("--cert-dir={}", cluster.files.directory("adapter-certificates")?.display()),
        format!("--lister-kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
    ];
    Ok(Program::new(ADAPTER, path, args, &cluster.files.logs()))
}

/// Service and `APIService`, as the adapter's chart has them; the certificate is one that the adapter makes for itself.
fn registered() -> [Value; 2] {
    let port = json!({"name": API.port_name, "port": API.port});
    [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": API.service, "namespace": API.namespace},
            "spec": {"ports": [port]},
        }),
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": API.name},
            "spec": {
                "group": "custom.metrics.k8s.io", "version": "v1beta1",
                "service": {"name": API.service, "namespace": API.namespace, "port": API.port},
                "insecureSkipTLSVerify": true, "groupPriorityMinimum": 100, "versionPriority": 100,
            },
        }),
    ]
}

/// The example's, which asks for a part of a GPU, with a program that uses it.
fn deployment(guests: &Guests) -> anyhow::Result<Value> {
    let mut pod = guests.pod("any", GIB, CORES)?;
    let mut object = example(0)?;
    let annotations = pod["metadata"]["annotations"].take();
    object["spec"]["template"]["metadata"]["annotations"] = annotations;
    object["spec"]["template"]["spec"] = pod["spec"].take();
    Ok(object)
}

/// The example's, but that memory, of which the program takes all at once, doesn't count, and replicas go at once.
fn autoscaler() -> anyhow::Result<Value> {
    let mut object = example(1)?;
    object["spec"]["metrics"].as_array_mut().context("metrics")?.truncate(1);
    object["spec"]["maxReplicas"] = json!(REPLICAS);
    object["spec"]["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 0}});
    Ok(object)
}

fn example(at: usize) -> anyhow::Result<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(EXAMPLE).context("deploy/examples/autoscaling.yaml")?;
    objects.into_iter().nth(at).context("an object")
}

async fn create(cluster: &Cluster, object: Value) -> anyhow::Result<()> {
    let file = cluster.files.write("autoscaled.json", object.to_string())?;
    cluster.kubectl.run(&["apply", "--filename", path(&file)?]).await.map(drop)
}

fn path(file: &Path) -> anyhow::Result<&str> {
    file.to_str().context("a path that is text")
}

/// Waits until the autoscaler has set so many, for a reason that isn't a limit of its own.
async fn replicas(cluster: &mut Cluster, wanted: u64) -> anyhow::Result<()> {
    let set = async |this: &mut Cluster| {
        let hpa = this.api.get("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/infer").await?;
        let now = this.api.get("/apis/apps/v1/namespaces/default/deployments/infer/scale").await?;
        let (status, now) = (&hpa["status"], now["spec"]["replicas"].as_u64());
        ensure!(now == Some(wanted), "{now:?} replicas: {status}");
        let current = &status["currentMetrics"][0]["pods"]["current"]["averageValue"];
        println!("  {wanted} replicas at {current}");
        Ok(Some(()))
    };
    cluster.until(&format!("{wanted} replicas"), PATIENCE, set).await
}

/// Values of a metric for all replicas, once it has them.
async fn all_pods(cluster: &mut Cluster, metric: &str) -> anyhow::Result<Vec<Value>> {
    let path = format!("{METRICS}/pods/*/{metric}?labelSelector=app%3Dinfer");
    cluster
        .until(&format!("{metric} of all pods"), PATIENCE, async |this| {
            let items = this.api.get(&path).await?["items"].take();
            let items = items.as_array().cloned().unwrap_or_default();
            ensure!(u64::try_from(items.len())? == REPLICAS, "{items:?}");
            Ok(Some(items))
        })
        .await
}
