//! A rolling update of the daemon while pods come, as `kubectl rollout restart` begins it.

use std::time::Duration;

use anyhow::ensure;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::{pods, view};

const PODS: usize = 100;
/// Pods in a second.
const RATES: [u32; 2] = [5, 12];
/// Names how often each is tried.
const ROUNDS: &str = "DIVVY_E2E_ROUNDS";

/// How many pods are lost, with the extender and with an untouched kube-scheduler.
pub(crate) async fn while_pods_come(cluster: &mut Cluster) -> anyhow::Result<()> {
    let rounds = std::env::var(ROUNDS).map_or(Ok(1), |text| text.parse::<usize>())?;
    for has_extender in [true, false] {
        if !has_extender {
            cluster.switch_off_extender().await?;
        }
        for rate in RATES {
            let mut lost = Vec::new();
            for _ in 0..rounds {
                lost.push(restarted(cluster, rate).await?);
            }
            let extender = if has_extender { "with the extender" } else { "without extender" };
            println!("  {extender}, {PODS} pods, {rate} a second: {lost:?} lost");
        }
    }
    cluster.configure_pods_as_installed().await
}

/// How many of a hundred pods, half of which come before the restart, are Failed.
async fn restarted(cluster: &mut Cluster, rate: u32) -> anyhow::Result<usize> {
    let mut due = tokio::time::interval(Duration::from_secs(1) / rate);
    for number in 0..PODS {
        due.tick().await;
        if number == PODS / 2 {
            let restart = ["--namespace=divvy-system", "rollout", "restart", "daemonset/divvy-node"];
            cluster.kubectl.run(&restart).await?;
        }
        cluster.create_objects(vec![pods::plain(&pods::mixed(number))]).await?;
    }
    let pods = cluster.all_settled(PODS).await?;
    let failures = view::failures(&pods);
    for (failure, count) in &failures {
        println!("    {count} × {}", failure.chars().take(180).collect::<String>());
    }
    cluster.rolled_out().await?;
    cluster.agree().await?;
    cluster.clear().await?;
    let lost = failures.values().map(|count| *count as usize).sum();
    ensure!(lost < PODS / 2, "{lost} pods are lost");
    Ok(lost)
}
