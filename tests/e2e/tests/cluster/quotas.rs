//! Quotas of GPUs by model, beside a real scheduler and while leaders are killed.

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_api::names::annotation::CARD_MODEL;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::view;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const QUOTAS: &str = "/apis/divvy.dev/v1alpha1/namespaces/default/gpuquotas";
/// GPUs that the namespace may hold, each of a pod.
const LIMIT: usize = 5;
const PODS_AT_ONCE: usize = 16;
const EXCEEDED: &str = "exceeded GpuQuota all, requested: gpu=1, used: gpu=5, limited: gpu=5";

/// Of pods that come at once as many run as the quota allows, whoever leads, and others when those have ended.
pub(crate) async fn kept_to_by_every_leader(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    cluster.restart_scheduler(true).await?;
    let model = cluster.scenario.cards.first().context("a node with cards")?.model.clone();
    let quota = json!({
        "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuQuota", "metadata": {"name": "all"},
        "spec": {"models": [format!("={model}")], "hard": {"gpu": LIMIT}},
    });
    cluster.api.create(QUOTAS, &quota).await?;
    let leader = cluster.until("leader", PATIENCE, async |this| Ok(this.webhook.leader().await)).await?;

    let accepted = create_at_once(cluster).await?;
    cluster.webhook.replicas[leader].program.kill().await?;
    cluster.webhook.replicas[leader].program.start()?;
    until_bound(cluster, LIMIT).await?;
    println!("  {accepted} of {PODS_AT_ONCE} pods were admitted, {LIMIT} of them run");
    for pod in waiting(&cluster.list().await?) {
        let name = view::name(&pod).to_owned();
        let says = |pod: &Value| view::unschedulable(pod).filter(|why| why.contains(EXCEEDED)).map(drop);
        cluster.until_pod(&name, says).await?;
    }
    cluster.webhook_ready().await?;
    let refused = cluster
        .until("refusal of another pod", PATIENCE, async |this| {
            let mut late = pod("late");
            // Without it a node with another model may come.
            late["metadata"]["annotations"] = json!({CARD_MODEL: format!("={model}")});
            let created = this.api.create(PODS, &late).await;
            if created.is_ok() {
                this.api.delete(&format!("{PODS}/late")).await?;
            }
            Ok(created.err().map(|error| format!("{error:#}")))
        })
        .await?;
    ensure!(refused.contains(EXCEEDED), "{refused}");

    // Each that ends lets another run.
    let before = waiting(&cluster.list().await?).len();
    for number in 0..before.min(2) {
        let pods = cluster.list().await?;
        let running = pods.iter().find(|pod| is_bound(pod)).context("a pod that runs")?;
        cluster.api.delete(&format!("{PODS}/{}", view::name(running))).await?;
        cluster
            .until("another pod", PATIENCE, async |this| {
                let pods = this.list().await?;
                let bound = pods.iter().filter(|pod| is_bound(pod)).count();
                ensure!(bound <= LIMIT, "{bound} pods are bound");
                Ok((bound == LIMIT && waiting(&pods).len() == before - number - 1).then_some(()))
            })
            .await?;
    }
    cluster.agree().await?;
    cluster.api.delete(&format!("{QUOTAS}/all")).await?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

fn pod(name: &str) -> Value {
    pods::plain(&PodShape::new(name).with(App, "main", &[("gpu", "1"), ("gpumem", "2Gi")]))
}

fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

fn waiting(pods: &[Value]) -> Vec<Value> {
    pods.iter().filter(|pod| !is_bound(pod)).cloned().collect()
}

/// Creates all pods at once; the quota may refuse some. How many were admitted.
async fn create_at_once(cluster: &Cluster) -> anyhow::Result<usize> {
    let mut creations = JoinSet::new();
    for number in 0..PODS_AT_ONCE {
        let api = cluster.api.clone();
        creations.spawn(async move { api.create(PODS, &pod(&format!("quota-{number}"))).await });
    }
    let mut admitted = 0;
    while let Some(created) = creations.join_next().await {
        match created? {
            Ok(_) => admitted += 1,
            Err(error) => ensure!(format!("{error:#}").contains("exceeded GpuQuota all"), "{error:#}"),
        }
    }
    ensure!(admitted >= LIMIT, "only {admitted} pods were admitted");
    Ok(admitted)
}

/// Waits until so many pods are bound and run; more at any moment are an error.
async fn until_bound(cluster: &mut Cluster, count: usize) -> anyhow::Result<()> {
    let mut most = 0;
    cluster
        .until("pods within the quota", PATIENCE, async |this| {
            let pods = this.list().await?;
            most = most.max(pods.iter().filter(|pod| is_bound(pod)).count());
            Ok((most > count || pods.iter().filter(|pod| view::is_ready(pod)).count() == count).then_some(()))
        })
        .await?;
    ensure!(most <= count, "{most} pods were bound at a time");
    Ok(())
}
