//! Amounts as extended resources of the node.

use anyhow::{Context as _, ensure};
use divvy_contract::ContainerKind::App;
use divvy_e2e::cluster::{Cluster, NODE_PATH, PATIENCE};
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::{node, view};
use divvy_playground::pods::PodShape;
use serde_json::{Value, json};

/// The scheduler counts them, the kubelet counts them again, and a restart of the kubelet keeps them.
pub(crate) async fn counted_twice(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.publish(&[("gpumem", 100_000)]).await?;
    show(cluster, 100_000).await?;
    let big = |name: &str| PodShape::new(name).with(App, "main", &[("gpu", "1"), ("gpumem", "60000Mi")]);
    cluster.create([big("first")]).await?;
    cluster.all_running(1).await?;
    cluster.create([big("second")]).await?;
    let said = until(cluster, "second", |pod| {
        let scheduled = view::condition(pod, "PodScheduled")?;
        scheduled["message"].as_str().filter(|_| scheduled["status"] == "False").map(str::to_owned)
    });
    let said = said.await?;
    println!("  scheduler: {said}");
    ensure!(said.contains("Insufficient nvidia.com/gpumem"), "the scheduler says: {said}");
    let mut forced = pods::object(big("third"))?;
    forced["spec"]["nodeName"] = json!(node::NODE);
    cluster.api.create(PODS, &forced).await?;
    let said = until(cluster, "third", |pod| (view::phase(pod) == "Failed").then(|| view::failure(pod))).await?;
    println!("  kubelet: {said}");
    ensure!(said.starts_with("OutOfnvidia.com/gpumem"), "the kubelet says: {said}");
    // It had been given a card before the kubelet counted: that share has to end.
    cluster.agree().await?;
    cluster.kubelet.kill().await?;
    cluster.kubelet.start()?;
    cluster.node_ready().await?;
    show(cluster, 100_000).await?;
    cluster.agree().await?;
    cluster.api.delete(&format!("{PODS}/first")).await?;
    until(cluster, "second", |pod| view::is_ready(pod).then_some(())).await?;
    cluster.agree().await?;
    cluster.clear().await?;
    cluster.publish_whole_node().await
}

async fn show(cluster: &mut Cluster, memory: u64) -> anyhow::Result<()> {
    cluster
        .until("allocatable memory", PATIENCE, async |this| {
            Ok((this.allocatable("nvidia.com/gpumem").await? == memory).then_some(()))
        })
        .await
        .with_context(|| format!("looking at {NODE_PATH}"))
}

async fn until<T>(cluster: &mut Cluster, name: &str, found: impl Fn(&Value) -> Option<T>) -> anyhow::Result<T> {
    cluster
        .until(&format!("news of pod {name}"), PATIENCE, async |this| {
            let pods = this.list().await?;
            Ok(pods.iter().find(|pod| view::name(pod) == name).and_then(&found))
        })
        .await
}
