//! Slots that tell their card's NUMA node, below a kubelet that keeps a container's devices on one.

use anyhow::ensure;
use divvy_api::ContainerKind::{App, Init};
use divvy_e2e::cluster::Cluster;
use divvy_e2e::daemon::HOST;
use divvy_e2e::node::CARDS;
use divvy_e2e::{node, pods, view};
use divvy_testkit::outside::SLOTS_PER_CARD;
use divvy_testkit::pods::{GPU, PodShape};
use serde_json::json;

use crate::bursts::{answered, say};

const SLOTS: u64 = SLOTS_PER_CARD as u64;

/// Parts of cards and several cards are admitted on one NUMA node, and a full card's slots aren't counted for it.
pub(crate) async fn on_one_numa_node(cluster: &mut Cluster) -> anyhow::Result<()> {
    // This machine may have no other NUMA node.
    align(cluster, "container", |_card| 0).await?;
    let parts = 20;
    cluster.create((0..parts).map(pods::mixed)).await?;
    cluster.all_running(parts).await?;
    let look = cluster.agree().await?;
    say(&cluster.calls().await?);
    let pods = look.node.pods.len();
    println!("  {pods} pods, parts of one card, two cards, whole ones: all admitted");
    unasked(cluster).await?;
    cluster.restart_kubelet().await?;
    cluster.agree().await?;
    cluster.clear().await?;

    // Each takes a card of its own, and of all but one card nothing is left.
    let full = u64::from(CARDS) - 1;
    cluster
        .create((0..full).map(|number| PodShape::new(format!("whole-{number}")).with(App, "main", &[("gpu", "1")])))
        .await?;
    cluster.all_running(usize::try_from(full)?).await?;
    cluster.agree().await?;
    cluster.until_allocatable(GPU, full + SLOTS).await?;
    println!("  {full} cards are full: {} slots are allocatable", full + SLOTS);
    let two: &[(&str, &str)] = &[("gpu", "2"), ("gpumem", "1Gi")];
    let one: &[(&str, &str)] = &[("gpu", "1"), ("gpumem", "1Gi")];
    cluster
        .create([
            PodShape::new("two").with(App, "main", two),
            PodShape::new("one").with(Init, "a", one).with(App, "b", one),
        ])
        .await?;
    let said = cluster.until_pod("two", |pod| view::is_over(pod).then(|| view::failure(pod))).await?;
    println!("  two cards where one is left: {said}");
    cluster.until_pod("one", |pod| view::is_ready(pod).then_some(())).await?;
    cluster.agree().await?;
    unasked(cluster).await?;
    cluster.renew().await
}

/// Restarts the kubelet with policy `single-numa-node` and this scope, and the daemon with the cards on these NUMA nodes.
pub(crate) async fn align(cluster: &mut Cluster, scope: &str, numa: impl Fn(usize) -> u32) -> anyhow::Result<()> {
    cluster.change_cards(|scenario| {
        let cards = scenario.cards.iter_mut().enumerate();
        cards.for_each(|(number, card)| card.numa = Some(numa(number)));
    })?;
    cluster.scenario.write_sysfs(&cluster.files.at(HOST).join("sys"))?;
    let policy = json!({"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": scope});
    node::configure_kubelet(&cluster.files, &policy)?;
    cluster.restart_kubelet().await?;
    cluster.restart_daemon(&json!({"numaTopology": "on"})).await?;
    cluster.amounts_ready().await
}

/// Says how many Allocates came for slots that we weren't asked to choose.
async fn unasked(cluster: &mut Cluster) -> anyhow::Result<()> {
    let calls = cluster.calls().await?;
    let (asked, given) = (answered(&calls, "GetPreferredAllocation"), answered(&calls, "Allocate"));
    ensure!(given > 0, "nobody was served: {calls:?}");
    println!("  {given} Allocates, {asked} of them after GetPreferredAllocation");
    Ok(())
}
