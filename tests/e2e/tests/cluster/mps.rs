//! Tier `mps`, served by the pod of `deploy/mps`.

use anyhow::ensure;
use divvy_api::ContainerKind::App;
use divvy_api::Tier;
use divvy_api::container::{MPS_MEMORY_LIMIT, MPS_PIPE_DIRECTORY, MPS_THREAD_PERCENTAGE};
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_testkit::pods::PodShape;

use crate::hidden::environment;

/// The node changes its tier when the service comes and when it goes, and its clients find it.
pub(crate) async fn serves_containers(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.switch_on_mps().await?;
    until_tier(cluster, Tier::Mps).await?;
    cluster.amounts_ready().await?;
    let limits = [("gpu", "1"), ("gpumem", "4Gi"), ("gpucores", "25")];
    cluster.create([PodShape::new("client").with(App, "main", &limits)]).await?;
    cluster.all_running(1).await?;
    cluster.agree().await?;
    let variables = environment(cluster, "default", "client", "main").await?;
    let found: Vec<&str> = variables.lines().filter(|line| line.starts_with("CUDA_MPS_")).collect();
    println!("  {}", found.join(" "));
    for variable in [MPS_PIPE_DIRECTORY, MPS_MEMORY_LIMIT, MPS_THREAD_PERCENTAGE] {
        let start = format!("{variable}=");
        ensure!(found.iter().any(|line| line.starts_with(&start)), "no {variable}: {variables}");
    }
    ensure!(found.contains(&&*format!("{MPS_THREAD_PERCENTAGE}=25")), "{variables}");
    cluster.clear().await?;
    cluster.switch_off_mps().await?;
    until_tier(cluster, Tier::Shim).await?;
    cluster.amounts_ready().await
}

async fn until_tier(cluster: &mut Cluster, tier: Tier) -> anyhow::Result<()> {
    cluster
        .until(&format!("tier {tier}"), PATIENCE, async |this| {
            let shown = this.gpu_node().await?.status.unwrap_or_default().tier;
            ensure!(shown == tier, "{shown}");
            Ok(Some(()))
        })
        .await
}
