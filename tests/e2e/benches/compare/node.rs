//! What a device plugin costs on a real node: time until a hundred pods run, memory, and what becomes of pods when it is killed
//! while they come.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::Cluster;
use divvy_e2e::containers;
use divvy_e2e::figures::Spread;
use divvy_e2e::pods::PODS;
use divvy_e2e::program::Program;
use divvy_e2e::view;
use serde_json::Value;

use crate::figures::load;
use crate::parts;
use crate::plugins::{Plugin, Started};

const PLUGINS: [Plugin; 6] =
    [Plugin::AtOnce, Plugin::Nvidia, Plugin::Hami, Plugin::Gpushare, Plugin::Divvy, Plugin::DivvyOnMock];
const MANY: usize = 100;
/// MiB and percent of a GPU that each pod requests: eight GPUs of 40 GiB hold 128 of them.
const SHARE: (u32, u32) = (2 << 10, 5);
/// Longest that a hundred pods are watched: some systems bring up one in two seconds.
const WATCHED: Duration = Duration::from_secs(60);
/// Longest wait for anything else.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at the pods.
const PAUSE: Duration = Duration::from_millis(100);
/// Pods that run when the plugin is killed.
const KILLED_AT: [usize; 3] = [20, 40, 60];
/// A system that doesn't come so far within this is killed all the same.
const KILLED_AFTER: Duration = Duration::from_secs(10);
/// How long there is no plugin: a process that the kubelet starts again is away for longer.
const AWAY: Duration = Duration::from_millis(500);

/// What became of pods.
pub(crate) struct Settled {
    /// Run with all their containers.
    pub(crate) running: usize,
    /// By the kubelet's words.
    pub(crate) failed: BTreeMap<String, u32>,
    /// Neither.
    pub(crate) waiting: usize,
    took: Duration,
}

/// Figures of a plugin by their name.
type Figures = BTreeMap<(&'static str, Plugin), Vec<f64>>;

/// All plugins in turns.
pub(crate) async fn costs(cluster: &mut Cluster) -> anyhow::Result<()> {
    let plugins = Plugin::given(&PLUGINS);
    cluster.end_pods().await?;
    cluster.kill_daemon().await?;
    let mut figures = Figures::new();
    for round in 0..parts::rounds() {
        for plugin in &plugins {
            let of_round =
                of_one(cluster, *plugin).await.with_context(|| format!("round {round}, {}", plugin.name()))?;
            let shown: Vec<_> = of_round.iter().map(|(name, value)| format!("{name} {value:.1}")).collect();
            println!("  round {round}, {}: {}, load {}", plugin.name(), shown.join(", "), load());
            for (name, value) in of_round {
                figures.entry((name, *plugin)).or_default().push(value);
            }
        }
    }
    for ((name, plugin), values) in figures {
        if let Some(spread) = Spread::of(values) {
            println!("{name} | {} | {spread}", plugin.name());
        }
    }
    Ok(())
}

async fn of_one(cluster: &mut Cluster, plugin: Plugin) -> anyhow::Result<Vec<(&'static str, f64)>> {
    let mut started = plugin.start(cluster).await?;
    first_runs(cluster, plugin).await?;
    let mut figures = Vec::new();
    create(cluster, plugin).await?;
    let Settled { running, failed, waiting, took } = settle(cluster, WATCHED).await?;
    println!("    {running} run after {took:.1?}, {waiting} wait, failed: {failed:?}");
    if running == MANY {
        figures.push(("seconds until 100 pods run", took.as_secs_f64()));
    }
    figures.push(("of 100 pods run within 60 s", count(running)?));
    if let Some([now, most]) = started.program(cluster).and_then(|program| Program::memory(program)) {
        figures.extend([("MiB resident", count(now)?), ("MiB at most", count(most)?)]);
    }
    end(cluster).await?;
    if !matches!(plugin, Plugin::AtOnce | Plugin::DivvyOnMock) {
        create(cluster, plugin).await?;
        kill_while_pods_come(cluster, &mut started).await?;
        let Settled { running, failed, waiting, .. } = settle(cluster, WATCHED).await?;
        println!("    killed three times: {running} run, {waiting} wait, failed: {failed:?}");
        figures.push(("pods lost, plugin killed three times", f64::from(failed.values().sum::<u32>())));
        figures.push(("pods that wait 60 s later", count(waiting)?));
        end(cluster).await?;
    }
    started.stop(cluster).await?;
    Ok(figures)
}

/// Waits until one pod has run: plugin, scheduler and extender then know each other.
pub(crate) async fn first_runs(cluster: &mut Cluster, plugin: Plugin) -> anyhow::Result<()> {
    let (memory, cores) = SHARE;
    cluster.create_objects(vec![plugin.pod("first".to_owned(), memory, cores)?]).await?;
    let Settled { running, failed, .. } = settle(cluster, PATIENCE).await?;
    ensure!(running == 1, "the first pod doesn't run: {failed:?}");
    end(cluster).await
}

async fn create(cluster: &Cluster, plugin: Plugin) -> anyhow::Result<()> {
    let (memory, cores) = SHARE;
    let pods = (0..MANY).map(|number| plugin.pod(format!("p-{number}"), memory, cores));
    cluster.create_objects(pods.collect::<anyhow::Result<_>>()?).await
}

async fn kill_while_pods_come(cluster: &mut Cluster, started: &mut Started) -> anyhow::Result<()> {
    for running in KILLED_AT {
        let end = Instant::now() + KILLED_AFTER;
        while count_running(&cluster.list().await?) < running && Instant::now() < end {
            tokio::time::sleep(PAUSE).await;
        }
        started.program(cluster).context("it has no process")?.kill().await?;
        // This is how long the kubelet is without it; nothing is waited for.
        tokio::time::sleep(AWAY).await;
        started.program(cluster).context("it has no process")?.start()?;
    }
    Ok(())
}

/// Waits until all pods run or are over, but no longer than that.
pub(crate) async fn settle(cluster: &mut Cluster, patience: Duration) -> anyhow::Result<Settled> {
    let begin = Instant::now();
    loop {
        let pods = cluster.list().await?;
        let running = count_running(&pods);
        let waiting = pods.iter().filter(|pod| !view::is_ready(pod) && !view::is_over(pod)).count();
        if waiting == 0 || begin.elapsed() > patience {
            return Ok(Settled { running, failed: view::failures(&pods), waiting, took: begin.elapsed() });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn count_running(pods: &[Value]) -> usize {
    pods.iter().filter(|pod| view::is_ready(pod)).count()
}

fn count(number: impl TryInto<u32, Error: Into<anyhow::Error>>) -> anyhow::Result<f64> {
    Ok(number.try_into().map_err(Into::into)?.into())
}

/// Deletes all pods, and waits until their processes are gone.
pub(crate) async fn end(cluster: &mut Cluster) -> anyhow::Result<()> {
    let uids: Vec<String> = cluster.list().await?.iter().map(|pod| view::uid(pod).to_owned()).collect();
    cluster.api.delete(PODS).await?;
    cluster
        .until("end of the pods", PATIENCE, async |this| {
            let running = containers::running(&BTreeMap::new());
            let is_gone = !running.keys().any(|(uid, _)| uids.contains(uid)) && this.list().await?.is_empty();
            Ok(is_gone.then_some(()))
        })
        .await
}
