//! What others lose: the kubelet its checkpoint, everybody the API server.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::{Cluster, Look};
use divvy_e2e::containers::{self, ContainerKey};
use divvy_e2e::{checkpoint, pods, runner};
use serde_json::json;

use crate::bursts::{answered, say, say_pods};

/// Running pods keep their shares, and slots that are handed out a second time overfill no card.
pub(crate) async fn checkpoint(cluster: &mut Cluster) -> anyhow::Result<()> {
    const OLD: usize = 40;
    cluster.restart_daemon(&json!({})).await?;
    cluster.create((0..OLD).map(pods::mixed)).await?;
    cluster.all_running(OLD).await?;
    let before = cluster.agree().await?;
    cluster.kubelet.kill().await?;
    std::fs::remove_file(checkpoint::path()).context("removing the checkpoint")?;
    cluster.forgot = true;
    cluster.kubelet.start()?;
    cluster.node_ready().await?;
    cluster.daemon_ready().await?;
    println!("  amounts after the restart: gpumem {}", cluster.allocatable("nvidia.com/gpumem").await?);
    cluster.publish_whole_node().await?;
    let look = cluster.agree().await?;
    containers::keep_their_shares(&before.running, &look.running)?;
    say_pods(&cluster.all_settled(OLD).await?);
    cluster.create((100..140).map(pods::mixed)).await?;
    say_pods(&cluster.all_settled(OLD + 40).await?);
    let look = cluster.agree().await?;
    containers::keep_their_shares(&before.running, &look.running)?;
    say(&cluster.calls().await?);
    cluster.clear().await
}

/// Containers restart with what they had, and a restarted daemon rebuilds, both long after the kubelet's last review of
/// our token.
pub(crate) async fn api_server(cluster: &mut Cluster) -> anyhow::Result<()> {
    const PODS: usize = 20;
    cluster.restart_daemon(&json!({})).await?;
    cluster.create((0..PODS).map(pods::mixed)).await?;
    cluster.all_running(PODS).await?;
    let before = cluster.agree().await?;
    let shared = with_a_share(&before);
    let [first, second, ..] = &*shared else { anyhow::bail!("two containers with shares are wanted") };
    let outage = runner::seconds("DIVVY_E2E_OUTAGE", 60);
    cluster.control_plane.api.kill().await?;
    let away = Instant::now();
    cluster.restart_container(first).await?;
    println!("  a container restarted {:.1?} after the API server went", away.elapsed());
    // The outage itself.
    tokio::time::sleep(outage.saturating_sub(away.elapsed())).await;
    cluster.restart_container(second).await?;
    ensure!(answered(&cluster.calls().await?, "PreStartContainer") > 0, "no PreStartContainer");
    cluster.kill_daemon().await?;
    let started = Instant::now();
    cluster.start_daemon().await.context("a daemon started while the API server is away")?;
    println!("  a daemon started while the API server is away is ready after {:.1?}", started.elapsed());
    let calls = answered(&cluster.calls().await?, "PreStartContainer");
    cluster.restart_container(first).await?;
    ensure!(answered(&cluster.calls().await?, "PreStartContainer") > calls, "no PreStartContainer");
    let look = cluster.agree().await?;
    containers::keep_their_shares(&before.running, &look.running)?;
    let back = Instant::now();
    cluster.control_plane.api.start()?;
    cluster.api_ready().await?;
    cluster.node_ready().await?;
    println!("  the node is Ready {:.1?} after the API server was started", back.elapsed());
    cluster.create([pods::mixed(100)]).await?;
    // A minute and more: the kubelet's watch of its pods tries again more and more seldom.
    cluster.all_running(PODS + 1).await?;
    println!("  a new pod runs {:.1?} after", back.elapsed());
    cluster.agree().await?;
    say(&cluster.calls().await?);
    cluster.clear().await
}

fn with_a_share(look: &Look) -> Vec<ContainerKey> {
    let shared = look.running.iter().filter(|(_, running)| running.given.limits.is_some());
    shared.map(|(key, _)| key.clone()).collect()
}
