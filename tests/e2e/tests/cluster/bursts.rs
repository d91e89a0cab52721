//! A hundred pods at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::daemon::Calls;
use divvy_e2e::{containers, pods, view};
use rand::RngExt as _;
use serde_json::{Value, json};

const PODS: usize = 100;

/// Every call was answered, and every container resolved exactly.
pub(crate) async fn a_hundred_pods(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.restart_daemon(&json!({})).await?;
    let started = Instant::now();
    cluster.create((0..PODS).map(pods::mixed)).await?;
    println!("  created after {:.1?}", started.elapsed());
    cluster.all_running(PODS).await?;
    println!("  all running after {:.1?}", started.elapsed());
    let look = cluster.agree().await?;
    let calls = cluster.calls().await?;
    say(&calls);
    let requests =
        look.node.pods.iter().flat_map(|pod| &pod.containers).filter(|container| container.request.is_some());
    let requests = u64::try_from(requests.count())?;
    ensure!(refused(&calls) == 0, "calls were refused: {calls:?}");
    let answered = answered(&calls, "Allocate");
    ensure!(answered == requests, "{requests} containers request cards, {answered} were answered");
    cluster.clear().await
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Victims {
    Kubelet,
    Both,
}

/// What ran before a kill runs on with what it had; a pod runs with what it asked for or has failed.
pub(crate) async fn with_kills(cluster: &mut Cluster, victims: Victims) -> anyhow::Result<()> {
    const KILLS: u32 = 8;
    let pause = |most: u64| Duration::from_millis(rand::rng().random_range(0..most));
    cluster.restart_daemon(&json!({})).await?;
    cluster.create((0..PODS).map(pods::mixed)).await?;
    let mut before = BTreeMap::new();
    for kill in 0..KILLS {
        // The moment is what is random here; nothing is waited for.
        tokio::time::sleep(pause(3000)).await;
        before.extend(cluster.look()?.running);
        if victims == Victims::Both && kill % 2 == 0 {
            cluster.kill_daemon().await?;
            tokio::time::sleep(pause(1000)).await;
            cluster.begin_daemon()?;
        } else {
            cluster.kubelet.kill().await?;
            tokio::time::sleep(pause(1000)).await;
            cluster.kubelet.start()?;
        }
    }
    let pods = cluster.all_settled(PODS).await?;
    cluster.daemon_ready().await?;
    say_pods(&pods);
    if victims == Victims::Kubelet {
        // Nobody asks while it is down, and it finds us before it asks again: a kill costs one pod at most.
        let failed = pods.iter().filter(|pod| view::is_over(pod)).count();
        ensure!(failed <= usize::try_from(KILLS)?, "{failed} pods failed after {KILLS} kills of the kubelet");
    }
    let look = cluster.agree().await?;
    say(&cluster.calls().await?);
    containers::keep_their_shares(&before, &look.running)?;
    cluster.clear().await
}

/// Prints how many pods run, and why the others don't.
pub(crate) fn say_pods(pods: &[Value]) {
    println!("  {} of {} pods run", pods.iter().filter(|pod| view::is_ready(pod)).count(), pods.len());
    for (reason, count) in view::failures(pods) {
        println!("  {count} failed: {reason}");
    }
}

/// Prints the kubelet's calls.
pub(crate) fn say(calls: &Calls) {
    let calls = calls.iter().map(|((call, outcome), count)| format!("{call} {outcome} {count}"));
    println!("  calls: {}", calls.collect::<Vec<_>>().join(", "));
}

/// Calls that were answered with a refusal.
pub(crate) fn refused(calls: &Calls) -> u64 {
    calls.iter().filter(|((_, outcome), _)| outcome != "ok").map(|(_, count)| count).sum()
}

/// Calls of this name that were answered.
pub(crate) fn answered(calls: &Calls, call: &str) -> u64 {
    calls.get(&(call.to_owned(), "ok".to_owned())).copied().unwrap_or_default()
}
