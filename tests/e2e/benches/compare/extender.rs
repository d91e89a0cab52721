//! How long an extender takes to answer, called as kube-scheduler calls it, by the number of nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::Cluster;
use divvy_e2e::fakes;
use divvy_e2e::figures::Spread;
use divvy_e2e::pods::PODS;
use serde_json::{Value, json};

use crate::client::Extender;
use crate::figures::{load, micros};
use crate::systems::{System, hami};
use crate::{nodes, parts};

const SIZES: [usize; 3] = [100, 1_000, 5_000];
const SYSTEMS: [System; 4] = [System::Nothing, System::Gpushare, System::Hami, System::Divvy];
/// Pods that each system is asked about in a round.
const CALLS: usize = 20;
/// Of these, pods that are bound. gpushare's client makes 5 calls a second.
const BINDS: usize = 8;
/// Pods before, whose calls aren't counted.
const WARM: usize = 3;
/// In a call's place: what the system has in memory after the calls.
const MEMORY: &str = "MiB resident";
/// Longest wait for pods to be gone.
const PATIENCE: Duration = Duration::from_secs(120);

/// Times of the calls, one for each pod.
type Times = BTreeMap<&'static str, Vec<Duration>>;

/// Medians of the rounds by call and system.
type Found = BTreeMap<(&'static str, System), Vec<f64>>;

/// Filter, prioritize and bind of each system, in turns.
pub(crate) async fn calls(cluster: &mut Cluster) -> anyhow::Result<()> {
    let systems = System::given(&SYSTEMS);
    without_scheduler(cluster).await?;
    let mut made = 0;
    for size in SIZES {
        nodes::make(cluster, made..size).await.with_context(|| format!("{size} nodes"))?;
        made = size;
        let mut found = Found::new();
        for round in 0..parts::rounds() {
            for system in &systems {
                let what = format!("round {round}, {size} nodes, {}", system.name());
                let (times, memory) = one(cluster, *system, size).await.with_context(|| what.clone())?;
                for (call, times) in times {
                    let median = Spread::of(micros(&times)).map_or(f64::NAN, |spread| spread.median);
                    println!("  {what}: {call} {median:.0} µs, load {}", load());
                    found.entry((call, *system)).or_default().push(median);
                }
                if let Some(memory) = memory {
                    println!("  {what}: {memory} MiB resident");
                    found.entry((MEMORY, *system)).or_default().push(memory);
                }
            }
        }
        sum_up(size, &found);
    }
    Ok(())
}

fn sum_up(size: usize, found: &Found) {
    println!("{size} nodes, {} names:", sample(size));
    for ((call, system), medians) in found {
        let Some(spread) = Spread::of(medians.iter().copied()) else { continue };
        let nothing = found.get(&("filter", System::Nothing)).filter(|_| *call != MEMORY);
        let ratios = nothing.into_iter().flat_map(|nothing| medians.iter().zip(nothing)).map(|(own, its)| own / its);
        let ratio = Spread::of(ratios).map_or_else(String::new, |ratio| format!(" µs, {ratio} × do-nothing's filter"));
        println!("{size} nodes | {call} | {} | {spread}{ratio}", system.name());
    }
}

/// Takes the node, the scheduler and the webhook's reviews out of the cluster.
pub(crate) async fn without_scheduler(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    cluster.unregister_webhook().await?;
    fakes::instead_of_the_node(cluster).await?;
    cluster.control_plane.scheduler.kill().await?;
    for program in cluster.webhook.programs() {
        program.kill().await?;
    }
    Ok(())
}

/// Names that kube-scheduler asks about: it looks for so many nodes that fit, by default (`percentageOfNodesToScore`).
fn sample(nodes: usize) -> usize {
    (nodes * (50 - nodes / 125).max(5) / 100).max(100).min(nodes)
}

/// One system's calls, and its resident MiB after them.
async fn one(cluster: &mut Cluster, system: System, size: usize) -> anyhow::Result<(Times, Option<f64>)> {
    let objects = (0..WARM + CALLS).map(|at| system.pod(format!("p-{at}"), u32::try_from(at)?));
    cluster.create_objects(objects.collect::<anyhow::Result<_>>()?).await?;
    let pods = cluster.list().await?;
    let mut started = system.start(cluster).await?;
    let extender = Extender::new(started.extender.take().context("it has no extender")?)?;
    let times = ask(cluster, system, &extender, size, &pods).await?;
    let memory = system.stop(cluster, started).await?;
    cluster.api.delete(PODS).await?;
    cluster.until("end of the pods", PATIENCE, async |this| Ok(this.list().await?.is_empty().then_some(()))).await?;
    Ok((times, memory.map(u32::try_from).transpose()?.map(f64::from)))
}

async fn ask(
    cluster: &Cluster,
    system: System,
    extender: &Extender,
    size: usize,
    pods: &[Value],
) -> anyhow::Result<Times> {
    let mut times = Times::new();
    for (call, pod) in pods.iter().enumerate() {
        let mut pod = pod.clone();
        // As the scheduler's informers drop it.
        pod["metadata"]["managedFields"] = Value::Null;
        // The scheduler goes on where it ended at the last pod.
        let names: Vec<String> = (0..sample(size)).map(|at| nodes::name((call * 97 + at) % size)).collect();
        let args = |names: &Value| json!({"Pod": pod, "Nodes": null, "NodeNames": names});
        let (filter, answer) = extender.call("filterVerb", &args(&json!(names))).await?;
        let mut spent = vec![("filter", filter)];
        let first =
            answer["NodeNames"][0].as_str().with_context(|| format!("no node is left: {}", answer["FailedNodes"]))?;
        let scores = if extender.has("prioritizeVerb") {
            let (prioritize, scores) = extender.call("prioritizeVerb", &args(&answer["NodeNames"])).await?;
            spent.extend([("prioritize", prioritize), ("filter and prioritize", filter + prioritize)]);
            scores
        } else {
            Value::Null
        };
        let best = scores.as_array().and_then(|scores| scores.iter().max_by_key(|score| score["Score"].as_i64()));
        let node = best.and_then(|score| score["Host"].as_str()).unwrap_or(first);
        if extender.has("bindVerb") && call < WARM + BINDS {
            let metadata = &pod["metadata"];
            let binding = json!({
                "PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"],
                "Node": node,
            });
            spent.push(("bind", extender.call("bindVerb", &binding).await?.0));
            if system == System::Hami {
                hami::release(&cluster.api, node).await?;
            }
        }
        if call >= WARM {
            for (verb, time) in spent {
                times.entry(verb).or_default().push(time);
            }
        }
    }
    ensure!(times["filter"].len() == CALLS, "{} of {CALLS} calls", times["filter"].len());
    Ok(times)
}
