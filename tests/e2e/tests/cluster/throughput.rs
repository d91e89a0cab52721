//! How many pods a second kube-scheduler places, with the extender and without: a thousand nodes that nobody runs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use divvy_e2e::audit::Bindings;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::fakes::{self, Fake};
use divvy_e2e::figures::Spread;
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::program::processor_time;
use divvy_testkit::pods::PodShape;
use serde_json::json;

const NODES: usize = 1000;
const CARDS: usize = 8;
const MANY: u32 = 1000;
/// `DIVVY_E2E_ROUNDS` sets another number.
const ROUNDS: usize = 10;
/// Longest wait for a run.
const RUN: Duration = Duration::from_secs(180);

/// What one run showed.
struct Measured {
    /// Pods a second.
    rate: f64,
    /// Seconds of processors by program, from the scheduler's start to the last binding.
    spent: BTreeMap<&'static str, f64>,
    /// Made by the scheduler.
    connections: f64,
}

/// Interleaved runs of a scheduler alone, with a shortlist of one node, and with one of sixteen.
pub(crate) async fn throughput(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    cluster.unregister_webhook().await?;
    fakes::instead_of_the_node(cluster).await?;
    fakes::make(cluster, (0..NODES).map(|number| fake(&format!("fake-{number}"))).collect()).await?;
    let rounds = std::env::var("DIVVY_E2E_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let mut runs: BTreeMap<Option<u32>, Vec<Measured>> = BTreeMap::new();
    for round in 0..rounds {
        for shortlist in [None, Some(1), Some(16)] {
            let run =
                run(cluster, shortlist).await.with_context(|| format!("round {round}, shortlist {shortlist:?}"))?;
            println!("  round {round}, {}: {:.0} pods a second", name(shortlist), run.rate);
            runs.entry(shortlist).or_default().push(run);
        }
    }
    for replica in &cluster.webhook.replicas {
        println!("  resident with {NODES} nodes, MiB now and at most: {:?}", replica.program.memory());
    }
    sum_up(&runs);
    Ok(())
}

fn sum_up(runs: &BTreeMap<Option<u32>, Vec<Measured>>) {
    println!("  milliseconds of processors for one pod, medians:");
    for (shortlist, runs) in runs {
        let programs = runs[0].spent.keys().map(|program| {
            let spent = runs.iter().map(|run| run.spent[program] * 1e3 / f64::from(MANY));
            let spent = Spread::of(spent).map_or(f64::NAN, |spread| spread.median);
            (*program, spent)
        });
        let all: f64 = programs.clone().map(|(_, spent)| spent).sum();
        let programs: Vec<_> = programs.map(|(program, spent)| format!("{program} {spent:.2}")).collect();
        println!("    {}: {all:.2} = {}", name(*shortlist), programs.join(" + "));
        let connections = Spread::of(runs.iter().map(|run| run.connections)).map_or(f64::NAN, |spread| spread.median);
        println!("      {connections} connections of the scheduler");
    }
    for (shortlist, budget) in [(1, 1.1), (16, 0.9)] {
        let ratios = runs[&Some(shortlist)].iter().zip(&runs[&None]).map(|(with, without)| with.rate / without.rate);
        let Some(Spread { median, least, most }) = Spread::of(ratios) else { continue };
        println!("  shortlist {shortlist}: {median:.2} of the scheduler alone ({least:.2} to {most:.2})   ≥ {budget}");
    }
}

fn name(shortlist: Option<u32>) -> String {
    shortlist.map_or_else(|| "alone".to_owned(), |shortlist| format!("shortlist {shortlist}"))
}

/// Pods a second between the first tenth and 95 %.
async fn run(cluster: &mut Cluster, shortlist: Option<u32>) -> anyhow::Result<Measured> {
    cluster.control_plane.scheduler.kill().await?;
    if let Some(shortlist) = shortlist {
        cluster.webhook.configure(&json!({"shortlist": shortlist})).await?;
        cluster.webhook_ready().await?;
        cluster.until("leader", RUN, async |this| Ok(this.webhook.leader().await)).await?;
    }
    cluster.create((0..MANY).map(pod)).await?;
    let mut bindings = Bindings::from_now_on(&cluster.files)?;
    let mut times = Vec::new();
    let before = spent(cluster);
    let connections = cluster.webhook.connections();
    cluster.restart_scheduler(shortlist.is_some()).await?;
    cluster
        .until("pods that all have a node", RUN, async |_| {
            times.extend(bindings.new_ones()?);
            Ok((times.len() >= usize::try_from(MANY)?).then_some(()))
        })
        .await?;
    let spent: BTreeMap<_, _> = spent(cluster)
        .into_iter()
        .map(|(program, spent)| (program, spent - before.get(program).unwrap_or(&0.0)))
        .collect();
    let connections = u32::try_from(cluster.webhook.connections() - connections)?.into();
    times.sort_by(f64::total_cmp);
    cluster.api.delete(PODS).await?;
    cluster.until("end of the pods", RUN, async |this| Ok(this.list().await?.is_empty().then_some(()))).await?;
    let (first, last) = (MANY / 10, MANY * 95 / 100);
    let time = times[usize::try_from(last)?] - times[usize::try_from(first)?];
    Ok(Measured { rate: f64::from(last - first) / time, spent, connections })
}

/// Seconds of processors by program, until now.
fn spent(cluster: &Cluster) -> BTreeMap<&'static str, f64> {
    let (plane, [one, other]) = (&cluster.control_plane, &cluster.webhook.replicas);
    let programs = [
        ("kube-scheduler", &plane.scheduler),
        ("kube-apiserver", &plane.api),
        ("etcd", &plane.etcd),
        ("a replica", &one.program),
        ("the other", &other.program),
    ];
    let spent = programs.map(|(name, program)| (name, program.processor_time()));
    let own = ("the Service", processor_time(std::process::id()));
    let known = spent.into_iter().chain([own]);
    known.map(|(name, spent)| (name, spent.unwrap_or_default().as_secs_f64())).collect()
}

fn pod(number: u32) -> PodShape {
    pods::part(format!("p-{number}"), number as usize)
}

fn fake(name: &str) -> Fake {
    let amounts = json!({
        "cpu": "64", "memory": "512Gi", "pods": "250", "nvidia.com/gpu": (CARDS * 32).to_string(),
        "nvidia.com/gpumem": (CARDS * 80 * 1024).to_string(), "nvidia.com/gpumem-percentage": (CARDS * 100).to_string(),
        "nvidia.com/gpucores": (CARDS * 100).to_string(),
    });
    let card = |number: usize| {
        let classes: Vec<&str> = (0..CARDS).map(|other| if other == number { "X" } else { "NV18" }).collect();
        json!({
            "uuid": format!("GPU-{name}-{number}"), "model": "NVIDIA H100 80GB HBM3", "memoryMi": 80 * 1024,
            "health": "Healthy", "topology": classes.join(" "),
        })
    };
    Fake { name: name.to_owned(), amounts, cards: (0..CARDS).map(card).collect() }
}
