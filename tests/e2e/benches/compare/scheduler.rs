//! Pods a second, and the time of a scheduling cycle, of a real kube-scheduler with each of the extenders.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use divvy_e2e::audit::Bindings;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::control_plane::configure_scheduler;
use divvy_e2e::figures::{Spread, sample};
use divvy_e2e::pods::PODS;

use crate::extender::without_scheduler;
use crate::figures::load;
use crate::systems::System;
use crate::{nodes, parts};

const NODES: usize = 1_000;
const MANY: u32 = 500;
const SYSTEMS: [System; 6] =
    [System::Alone, System::Nothing, System::Gpushare, System::HamiAsShipped, System::Hami, System::Divvy];
/// How long a system is watched after its first binding: some bind a few pods a second.
const WATCHED: Duration = Duration::from_secs(20);
/// Longest wait for anything else.
const PATIENCE: Duration = Duration::from_secs(180);
/// Between two looks at the bindings.
const PAUSE: Duration = Duration::from_millis(100);

/// What one run showed.
struct Measured {
    /// Pods a second.
    rate: f64,
    /// Milliseconds of a cycle, mean (`scheduler_scheduling_algorithm_duration_seconds`).
    cycle: f64,
}

/// All systems in turns.
pub(crate) async fn pods_a_second(cluster: &mut Cluster) -> anyhow::Result<()> {
    let systems = System::given(&SYSTEMS);
    without_scheduler(cluster).await?;
    nodes::make(cluster, 0..NODES).await?;
    let mut runs: BTreeMap<System, Vec<Measured>> = BTreeMap::new();
    for round in 0..parts::rounds() {
        for system in &systems {
            let run = run(cluster, *system).await.with_context(|| format!("round {round}, {}", system.name()))?;
            let Measured { rate, cycle } = run;
            println!("  round {round}, {}: {rate:.1} pods/s, cycle {cycle:.2} ms, load {}", system.name(), load());
            runs.entry(*system).or_default().push(run);
        }
    }
    for (system, all) in &runs {
        let ratios = all.iter().zip(&runs[&System::Alone]).map(|(run, alone)| run.rate / alone.rate);
        let columns = [
            Spread::of(all.iter().map(|run| run.rate)),
            Spread::of(ratios),
            Spread::of(all.iter().map(|run| run.cycle)),
        ];
        let columns = columns.map(|spread| spread.map_or_else(String::new, |spread| spread.to_string()));
        let [rate, ratio, cycle] = columns;
        println!("{} | {rate} pods/s | {ratio} of alone | {cycle} ms", system.name());
    }
    Ok(())
}

async fn run(cluster: &mut Cluster, system: System) -> anyhow::Result<Measured> {
    let pods = (0..MANY).map(|number| system.pod(format!("p-{number}"), number));
    cluster.create_objects(pods.collect::<anyhow::Result<_>>()?).await?;
    let started = system.start(cluster).await?;
    configure_scheduler(&cluster.files, started.extender.clone())?;
    let mut bindings = Bindings::from_now_on(&cluster.files)?;
    cluster.control_plane.scheduler.start()?;
    let mut times = Vec::new();
    cluster
        .until("first binding", PATIENCE, async |_| {
            times.extend(bindings.new_ones()?);
            Ok((!times.is_empty()).then_some(()))
        })
        .await?;
    let end = Instant::now() + WATCHED;
    while times.len() < usize::try_from(MANY)? && Instant::now() < end {
        tokio::time::sleep(PAUSE).await;
        times.extend(bindings.new_ones()?);
    }
    let cycle = cycle(cluster).await?;
    cluster.control_plane.scheduler.kill().await?;
    system.stop(cluster, started).await?;
    cluster.api.delete(PODS).await?;
    cluster.until("end of the pods", PATIENCE, async |this| Ok(this.list().await?.is_empty().then_some(()))).await?;
    times.sort_by(f64::total_cmp);
    println!("    {} of {MANY} pods were bound", times.len());
    Ok(Measured { rate: rate(&times)?, cycle })
}

/// Pods a second between the first tenth and 95 % of what was bound.
fn rate(times: &[f64]) -> anyhow::Result<f64> {
    let (first, last) = (times.len() / 10, times.len() * 95 / 100);
    anyhow::ensure!(last > first, "{} pods were bound", times.len());
    Ok(f64::from(u32::try_from(last - first)?) / (times[last] - times[first]))
}

/// Mean milliseconds of the cycles since the scheduler was started.
async fn cycle(cluster: &Cluster) -> anyhow::Result<f64> {
    let page = cluster.control_plane.scheduler_pages.get("/metrics").await?;
    let metric = |end: &str| {
        let name = format!("scheduler_scheduling_algorithm_duration_seconds_{end}");
        sample(page.as_str().unwrap_or_default(), &name).with_context(|| format!("kube-scheduler shows no {name}"))
    };
    Ok(metric("sum")? / metric("count")? * 1e3)
}
