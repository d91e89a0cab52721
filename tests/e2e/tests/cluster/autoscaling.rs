//! A HorizontalPodAutoscaler that scales by what pods use of their GPUs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::Cluster;
use serde_json::{Value, json};

use crate::guests::{self, Guests};
use crate::top;

const EXAMPLE: &str = include_str!("../../../../deploy/examples/autoscaling.yaml");
const NAME: &str = "infer";
const GIB: u64 = 4;
const CORES: u32 = 20;
const REPLICAS: u64 = 3;
const METRICS: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default";
/// The autoscaler looks every 15 s, needs two looks for the first rate, and another one for each step.
const PATIENCE: Duration = Duration::from_secs(240);

/// Replicas come while the pods' programs work, and go when they rest. All programs are those of a cluster, with their defaults;
/// of the example the target alone is scaled.
pub(crate) async fn follows_the_use_of_gpus(cluster: &mut Cluster) -> anyhow::Result<()> {
    let guests = Guests::install(cluster).await?;
    let library = guests::library().await?;
    // At the address of the pod in its place too.
    let listen = format!("0.0.0.0:{}", cluster.daemon.address.port());
    let keys = json!({
        "tier": "shim", "libdivvyPath": library, "deviceListStrategy": "envvar", "listenAddress": listen,
    });
    cluster.restart_daemon(&keys).await?;
    let daemons_pod = top::stand_for_the_daemons_pod(cluster).await?;
    let apiserver = cluster.start_apiserver(&json!({"customMetrics": "on"})).await?;
    create(cluster, deployment(&guests)?).await?;
    create(cluster, autoscaler()?).await?;

    replicas(cluster, REPLICAS).await.context("while they work")?;
    cluster.all_running(usize::try_from(REPLICAS)?).await?;
    let selected = "pods/*/gpu_memory_used_ratio?labelSelector=app%3Dinfer";
    let of_pods = cluster
        .until("the memory of all pods", PATIENCE, async |this| {
            let items = items(this, selected).await?;
            ensure!(u64::try_from(items.len())? == REPLICAS, "{items:?}");
            Ok(items.iter().all(|item| item["value"] == "1").then_some(items))
        })
        .await?;
    let sum = items(cluster, "deployments.apps/infer/gpu_memory_used_bytes").await?;
    let bytes = (REPLICAS * GIB) << 30;
    ensure!(sum[0]["value"].as_str() == Some(&bytes.to_string()), "{sum:?}");
    println!("  {} pods have all of their memory, together {}", of_pods.len(), sum[0]["value"]);
    for item in items(cluster, "pods/*/gpu_compute_used_ratio?labelSelector=app%3Dinfer").await? {
        println!(
            "  {} {} of its compute in {} s",
            item["describedObject"]["name"], item["value"], item["windowSeconds"]
        );
    }

    guests.rest(true)?;
    replicas(cluster, 1).await.context("while they rest")?;
    println!("{}", cluster.kubectl.run(&["describe", "hpa", NAME]).await?);
    guests.rest(false)?;

    for object in [format!("hpa/{NAME}"), format!("deployment/{NAME}")] {
        cluster.kubectl.run(&["delete", &object, "--cascade=foreground"]).await?;
    }
    cluster.stop_apiserver(apiserver).await?;
    cluster.api.delete(&daemons_pod).await?;
    cluster.renew().await
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

/// Values as kube-apiserver passes them on.
async fn items(cluster: &Cluster, path: &str) -> anyhow::Result<Vec<Value>> {
    let mut list = cluster.api.get(&format!("{METRICS}/{path}")).await?;
    match list["items"].take() {
        Value::Array(items) if !items.is_empty() => Ok(items),
        other => anyhow::bail!("{path}: {other}"),
    }
}
