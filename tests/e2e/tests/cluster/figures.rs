//! What the daemon costs on a real node.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use divvy_api::CardId;
use divvy_api::ContainerKind::App;
use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, NODE_PATH};
use divvy_e2e::node::whole;
use divvy_e2e::throwaway::Throwaway;
use divvy_e2e::{audit, pods, view};
use divvy_node::kubelet::client::PodListClient;
use divvy_testkit::outside::SLOTS_PER_CARD;
use divvy_testkit::own_part::{OwnPart, Pairs, median, row};
use divvy_testkit::pods::{GPU, PodShape};
use serde_json::{Map, json};

use crate::churn;

const PODS: usize = 100;

/// All of them.
pub(crate) async fn all(cluster: &mut Cluster) -> anyhow::Result<()> {
    load("at the start")?;
    list(cluster).await?;
    writes(cluster).await?;
    burst(cluster).await?;
    load("at the end")
}

/// The real kubelet's list of a hundred pods, bare and with all that Allocate does with it.
async fn list(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.restart_daemon(&json!({})).await?;
    let part: &[(&str, &str)] = &[("gpu", "1"), ("gpumem", "4Gi"), ("gpucores", "7")];
    cluster.create((0..PODS).map(|number| PodShape::new(format!("pod-{number}")).with(App, "main", part))).await?;
    cluster.all_running(PODS).await?;
    cluster.agree().await?;
    let client = PodListClient::new(cluster.daemon.kubelet.clone())?;
    let directory = cluster.files.directory("own-part")?;
    let mut own = OwnPart::new(&directory)?;
    let listed = client.list().await?.pods;
    for pod in listed.iter().filter(|pod| pod.name.starts_with("pod-")) {
        own.admit(&listed, pod)?;
    }
    let like = listed.iter().find(|pod| pod.name == "pod-0").context("pod-0 is listed")?;
    let Pairs { bare, whole } = own.pairs(&client, like).await?;
    let ratio = median(&whole).as_secs_f64() / median(&bare).as_secs_f64();
    load("after the lists")?;
    row("bare pod list of 100 pods, real kubelet", bare, "");
    row("Allocate with that list (list, decode, reconcile, plan, book)", whole, "");
    println!("{:<58} {ratio:>10.2} {:>10}   ≤ 1.1", "  ratio of the medians, 300 interleaved pairs", "");
    cluster.clear().await
}

/// What the daemon writes while pods come and go.
async fn writes(cluster: &mut Cluster) -> anyhow::Result<()> {
    let (before, started) = (audit::writes(&cluster.files)?, Instant::now());
    churn::pods_and_jobs(cluster).await?;
    let seconds = started.elapsed().as_secs_f64();
    for ((what, code), count) in audit::since(&before, audit::writes(&cluster.files)?) {
        println!(
            "  {what}: {count} in {seconds:.0} s, {:.2} per second, answered {code}",
            f64::from(u32::try_from(count)?) / seconds
        );
    }
    Ok(())
}

/// A hundred pods at once, by the daemon and by a plugin that answers at once, in turns.
async fn burst(cluster: &mut Cluster) -> anyhow::Result<()> {
    const PAIRS: usize = 5;
    let mut ratios = Vec::new();
    for pair in 0..PAIRS {
        cluster.restart_daemon(&json!({})).await?;
        cluster.amounts_ready().await?;
        let ours = started(cluster).await?;
        cluster.clear().await?;
        cluster.kill_daemon().await?;
        let plugin = Throwaway::start(slots(cluster)?).await?;
        set_amounts(cluster).await?;
        let its = started(cluster).await?;
        cluster.end_pods().await?;
        plugin.stop()?;
        let ratio = ours.as_secs_f64() / its.as_secs_f64();
        println!("  pair {pair}: {ours:.1?} with divvy-node, {its:.1?} with a plugin that answers at once: {ratio:.3}");
        load("after the pair")?;
        ratios.push(ratio);
    }
    cluster.start_daemon().await?;
    cluster.clear().await?;
    ratios.sort_by(f64::total_cmp);
    let [least, .., most] = &*ratios else { anyhow::bail!("two pairs are wanted") };
    println!("  100 pods at once: {:.3} (median of {PAIRS} pairs, {least:.3} to {most:.3})   ≤ 1.1", ratios[PAIRS / 2]);
    Ok(())
}

/// From the first creation to the last pod that runs.
async fn started(cluster: &mut Cluster) -> anyhow::Result<Duration> {
    let started = Instant::now();
    cluster.create((0..PODS).map(pods::mixed)).await?;
    cluster.all_running(PODS).await?;
    Ok(started.elapsed())
}

/// The same that the daemon has.
fn slots(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let minors: BTreeMap<u32, CardId> = view::minors(&cluster.scenario)?;
    let of = |card: CardId| (0..SLOTS_PER_CARD).map(move |number| card.slot(number).to_string());
    Ok(minors.into_values().flat_map(of).collect())
}

/// All that the node has, by hand, since the throwaway plugin says nothing.
async fn set_amounts(cluster: &mut Cluster) -> anyhow::Result<()> {
    let amounts = whole().into_iter().filter(|(resource, _)| *resource != GPU);
    let amounts: Map<_, _> = amounts.map(|(name, amount)| (name.to_owned(), json!(amount.to_string()))).collect();
    let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
    cluster.api.patch(NODE_PATH, Part::Status, &status).await?;
    cluster.amounts_ready().await
}

/// The machine does something else too: how much says whether a figure is worth anything.
fn load(when: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string("/proc/loadavg").context("reading /proc/loadavg")?;
    let load = text.split(' ').take(2).collect::<Vec<_>>().join(", ");
    println!("  load {when}: {load} (1 and 5 minutes)");
    Ok(())
}
