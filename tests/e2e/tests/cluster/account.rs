//! The daemon's ServiceAccount is deleted and made again, as tools that apply a repository do: its token is nobody's from then on.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::{pods, view};
use divvy_testkit::pods::{GPU, PodShape};

const RUNNING: usize = 3;
const NAMESPACE: &str = "--namespace=divvy-system";
const OF_DAEMON: &str = "--selector=app.kubernetes.io/name=divvy-node";
/// A rejected token ends the daemon after a minute, and whoever reviews tokens may believe in it for some seconds.
const END: Duration = Duration::from_secs(180);

/// Pods wait instead of failing, running ones don't notice, the daemon says what to do, and that helps.
pub(crate) async fn made_anew(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.create((0..RUNNING).map(pods::mixed)).await?;
    cluster.all_running(RUNNING).await?;
    cluster.agree().await?;
    let before = cluster.look()?.running;
    cluster.kubectl.run(&[NAMESPACE, "delete", "serviceaccount", "divvy-node"]).await?;
    cluster.kubectl.run(&[NAMESPACE, "create", "serviceaccount", "divvy-node"]).await?;
    let started = Instant::now();
    cluster.until_allocatable(GPU, u64::try_from(RUNNING)?).await?;
    println!("  only what is held is allocatable after {:.0?}", started.elapsed());
    cluster.create_objects(vec![pods::plain(&PodShape::new("waits").with(App, "main", &[("gpu", "1")]))]).await?;
    println!("  {}", cluster.until_pod("waits", view::unschedulable).await?);
    let jsonpath = "-o=jsonpath={.items[*].status.containerStatuses[*].lastState.terminated}";
    let ended = cluster
        .until("end of the daemon", END, async |this| {
            let last = this.kubectl.run(&[NAMESPACE, "get", "pods", OF_DAEMON, jsonpath]).await?;
            Ok(last.contains("\"exitCode\":1").then_some(last))
        })
        .await?;
    println!("  the daemon ended after {:.0?}: {}", started.elapsed(), ended.trim());
    let log = cluster.kubectl.run(&[NAMESPACE, "logs", OF_DAEMON, "--previous", "--tail=1"]).await?;
    println!("  {}", log.trim());
    ensure!(log.contains("divvy-system") && log.contains("kubectl"), "the remedy isn't named");
    ensure!(cluster.look()?.running.keys().filter(|key| before.contains_key(*key)).count() >= RUNNING, "pods ended");
    let waiting = cluster.list().await?.into_iter().find(|pod| view::name(pod) == "waits").context("it is there")?;
    ensure!(view::phase(&waiting) == "Pending", "the pod is {}", view::phase(&waiting));
    cluster.kubectl.run(&[NAMESPACE, "delete", "pods", OF_DAEMON]).await?;
    cluster.rolled_out().await?;
    cluster.until_pod("waits", |pod| view::is_ready(pod).then_some(())).await?;
    println!("  with another pod of the daemon the pod runs after {:.0?}", started.elapsed());
    cluster.until("agreement", PATIENCE, async |this| this.agree().await.map(Some)).await?;
    cluster.clear().await
}
