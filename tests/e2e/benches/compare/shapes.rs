//! Ten pods of different shapes at once on one node: whether each container was given what its own pod requests, and no GPU more
//! than it has.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::Cluster;
use divvy_e2e::containers::{self, Running};
use divvy_e2e::view;

use crate::node::{Settled, end, first_runs, settle};
use crate::parts;
use crate::plugins::{CARD_MEMORY, Plugin, Started};

const PLUGINS: [Plugin; 4] = [Plugin::Hami, Plugin::Gpushare, Plugin::Divvy, Plugin::DivvyWithExtender];
/// Pods at once: together they fill five of the eight GPUs, if they are put together well.
const PODS: u32 = 10;
/// Times that they come in each round.
const TIMES: usize = 3;
/// Longest that they are watched.
const WATCHED: Duration = Duration::from_secs(45);

/// What a container was given.
struct Share {
    card: String,
    /// MiB.
    memory: u64,
    /// Percent of the GPU.
    cores: u64,
}

/// How often what went wrong.
#[derive(Default)]
struct Tally {
    running: usize,
    failed: usize,
    waiting: usize,
    /// Containers with other amounts than their pod requests.
    swapped: usize,
    /// GPUs whose containers have more memory or compute than there is.
    overfilled: usize,
}

/// All of them in turns.
pub(crate) async fn at_once(cluster: &mut Cluster) -> anyhow::Result<()> {
    let plugins = Plugin::given(&PLUGINS);
    cluster.end_pods().await?;
    cluster.kill_daemon().await?;
    let mut tallies: BTreeMap<Plugin, Tally> = BTreeMap::new();
    for round in 0..parts::rounds() {
        for plugin in &plugins {
            let mut started = plugin.start(cluster).await?;
            first_runs(cluster, *plugin).await?;
            let tally = tallies.entry(*plugin).or_default();
            for time in 0..TIMES {
                let what = || format!("round {round}, {}, time {time}", plugin.name());
                come(cluster, *plugin, &mut started, tally).await.with_context(what)?;
            }
            started.stop(cluster).await?;
        }
    }
    for (plugin, tally) in tallies {
        let Tally { running, failed, waiting, swapped, overfilled } = tally;
        println!(
            "{}: {running} run, {failed} failed, {waiting} wait, {swapped} have other amounts than they request, {overfilled} \
             GPUs are overfilled",
            plugin.name()
        );
    }
    Ok(())
}

/// MiB and percent of a GPU that a pod requests: no two the same, in pairs that fill a GPU.
fn amounts(number: u32) -> (u32, u32) {
    ((6 + 3 * number) << 10, 5 + 3 * number)
}

async fn come(cluster: &mut Cluster, plugin: Plugin, started: &mut Started, tally: &mut Tally) -> anyhow::Result<()> {
    let pod = |number| {
        let (memory, cores) = amounts(number);
        plugin.pod(format!("p-{number}"), memory, cores)
    };
    cluster.create_objects((0..PODS).map(pod).collect::<anyhow::Result<_>>()?).await?;
    let Settled { running, failed, waiting, .. } = settle(cluster, WATCHED).await?;
    if let Some(program) = started.program(cluster) {
        program.check()?;
    }
    if !failed.is_empty() {
        println!("  failed: {failed:?}");
    }
    tally.running += running;
    tally.failed += usize::try_from(failed.values().sum::<u32>())?;
    tally.waiting += waiting;
    let mut cards: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let processes = containers::running(&BTreeMap::new());
    for pod in cluster.list().await?.iter().filter(|pod| view::is_ready(pod)) {
        let name = view::name(pod);
        let number = name.strip_prefix("p-").and_then(|number| number.parse().ok());
        let (memory, cores) = amounts(number.with_context(|| format!("pod {name} isn't ours"))?);
        let cores = if plugin == Plugin::Gpushare { 0 } else { cores };
        let key = (view::uid(pod).to_owned(), "main".to_owned());
        let process = processes.get(&key).with_context(|| format!("pod {name} has no process"))?;
        let share = given(plugin, process).with_context(|| format!("pod {name}"))?;
        if (share.memory, share.cores) != (memory.into(), cores.into()) {
            println!("  {name} requests {memory} MiB and {cores} %, has {} MiB and {} %", share.memory, share.cores);
            tally.swapped += 1;
        }
        let card = cards.entry(share.card).or_default();
        *card = (card.0 + share.memory, card.1 + share.cores);
    }
    for (card, (memory, cores)) in cards {
        if memory > CARD_MEMORY >> 20 || cores > 100 {
            println!("  {card} has {memory} MiB and {cores} % promised");
            tally.overfilled += 1;
        }
    }
    end(cluster).await
}

/// What the container's limits are, as what enforces them reads it: Divvy's file, the others' variables.
fn given(plugin: Plugin, process: &Running) -> anyhow::Result<Share> {
    if plugin.is_divvy() {
        let limits = process.given.limits.clone().context("it has no limits")?.map_err(anyhow::Error::msg)?;
        let [(card, share)] = &*limits.cards else { anyhow::bail!("it has {} GPUs", limits.cards.len()) };
        let (memory, cores) = (share.memory.as_mib(), share.cores.units().into());
        return Ok(Share { card: card.to_string(), memory, cores });
    }
    let environment = std::fs::read_to_string(format!("/proc/{}/environ", process.pid)).context("its environment")?;
    let variable = |name: &str| {
        let value = environment.split('\0').find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.with_context(|| format!("it has no {name}"))
    };
    if plugin == Plugin::Gpushare {
        // The index is -1 if the plugin found no pod that is to get so much, and the container has no GPU then.
        let card = variable("ALIYUN_COM_GPU_MEM_IDX")?.to_owned();
        let memory = variable("ALIYUN_COM_GPU_MEM_CONTAINER")?.parse::<u64>()? << 10;
        return Ok(Share { memory: if card == "-1" { 0 } else { memory }, card, cores: 0 });
    }
    let memory = variable("CUDA_DEVICE_MEMORY_LIMIT_0")?.trim_end_matches('m').parse()?;
    let card = variable("NVIDIA_VISIBLE_DEVICES")?.to_owned();
    ensure!(!card.contains(','), "it has several GPUs: {card}");
    Ok(Share { card, memory, cores: variable("CUDA_DEVICE_SM_LIMIT")?.parse()? })
}
