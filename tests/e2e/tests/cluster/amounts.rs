//! Amounts as extended resources of the node.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, NODE_PATH, PATIENCE};
use divvy_e2e::node::{CARDS, whole};
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::{node, view};
use divvy_testkit::pods::PodShape;
use fake_nvml::CardState;
use serde_json::{Map, Value, json};

/// The daemon offers what its healthy cards have, the scheduler counts it, the kubelet counts it again, and a restart of
/// the kubelet keeps it.
pub(crate) async fn counted_twice(cluster: &mut Cluster) -> anyhow::Result<()> {
    let one_card = whole()[1].1 / u64::from(CARDS);
    set_cards(cluster, |index| index == 0)?;
    cluster.until_allocatable("nvidia.com/gpumem", one_card).await?;
    let big = |name: &str| PodShape::new(name).with(App, "main", &[("gpu", "1"), ("gpumem", "60000Mi")]);
    let mut first = pods::object(big("first"))?;
    first["spec"]["terminationGracePeriodSeconds"] = json!(1);
    cluster.create_objects(vec![first]).await?;
    cluster.all_running(1).await?;
    cluster.create([big("second")]).await?;
    let said = cluster.until_pod("second", view::unschedulable).await?;
    println!("  scheduler: {said}");
    ensure!(said.contains("Insufficient nvidia.com/gpumem"), "the scheduler says: {said}");
    let failed = |pod: &Value| (view::phase(pod) == "Failed").then(|| view::failure(pod));
    force(cluster, "third", big("third"), |_| {}).await?;
    println!("  daemon: {}", cluster.until_pod("third", failed).await?);
    // A card that is there, and beside it processors that aren't.
    let little = PodShape::new("fourth").with(App, "main", &[("gpu", "1"), ("gpumem", "1Gi")]).with(App, "log", &[]);
    force(cluster, "fourth", little, |pod| {
        pod["spec"]["containers"][1]["resources"] = json!({"limits": {"cpu": "1000"}});
    })
    .await?;
    let said = cluster.until_pod("fourth", failed).await?;
    println!("  kubelet: {said}");
    ensure!(said.starts_with("OutOfcpu"), "the kubelet says: {said}");
    // Memory of no card: the kubelet alone counts it.
    force(cluster, "fifth", PodShape::new("fifth").with(App, "main", &[]), |pod| {
        pod["metadata"]["annotations"] = json!({});
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpumem": "60000"}});
    })
    .await?;
    let said = cluster.until_pod("fifth", failed).await?;
    println!("  kubelet: {said}");
    ensure!(said.starts_with("OutOfnvidia.com/gpumem"), "the kubelet says: {said}");
    // The fourth had been given a card before the kubelet counted: that share has to end.
    cluster.agree().await?;
    // Not by force: the scheduler would hear of it before its processes are dead, and the next pod be refused.
    cluster.kubectl.run(&["delete", "pod", "first"]).await?;
    cluster.until_pod("second", |pod| view::is_ready(pod).then_some(())).await?;
    cluster.agree().await?;
    cluster.kubelet.kill().await?;
    cluster.kubelet.start()?;
    cluster.node_ready().await?;
    cluster.until_allocatable("nvidia.com/gpumem", one_card).await?;
    cluster.agree().await?;
    set_cards(cluster, |_| true)?;
    cluster.clear().await
}

/// Amounts that somebody takes away are back before pods have to wait for long.
pub(crate) async fn taken_away(cluster: &mut Cluster) -> anyhow::Result<()> {
    const TIMES: usize = 10;
    let zeroes: Map<_, _> = whole()[1..].iter().map(|(resource, _)| ((*resource).to_owned(), json!("0"))).collect();
    let zeroes = json!({"status": {"capacity": zeroes, "allocatable": zeroes}});
    let patch = format!("--patch={zeroes}");
    let mut back = Vec::new();
    for number in 0..TIMES {
        cluster.kubectl.run(&["patch", "node", node::NODE, "--subresource=status", "--type=merge", &patch]).await?;
        cluster.create([pods::mixed(number)]).await?;
        cluster.all_running(number + 1).await?;
        cluster.agree().await?;
        let before = cluster.allocatable("nvidia.com/gpumem").await?;
        let taken = Instant::now();
        cluster.api.patch(NODE_PATH, Part::Status, &zeroes).await?;
        // Fewer than before, if a share in another form was still to be taken from them.
        while !(1..=before).contains(&cluster.allocatable("nvidia.com/gpumem").await?) {
            ensure!(taken.elapsed() < PATIENCE, "amounts aren't back");
        }
        back.push(taken.elapsed());
    }
    back.sort_unstable();
    println!("  amounts are back after {:.0?} (median of {TIMES}), {:.0?} at most", back[TIMES / 2], back[TIMES - 1]);
    // Nobody puts them back: pods wait.
    cluster.kill_daemon().await?;
    cluster.kubectl.run(&["patch", "node", node::NODE, "--subresource=status", "--type=merge", &patch]).await?;
    cluster.create([pods::mixed(TIMES)]).await?;
    let name = pods::mixed(TIMES).name;
    cluster.until_pod(&name, view::unschedulable).await?;
    let started = Instant::now();
    cluster.start_daemon().await?;
    cluster.all_running(TIMES + 1).await?;
    println!("  a pod that waited runs {:.1?} after the daemon was started", started.elapsed());
    cluster.agree().await?;
    cluster.clear().await
}

async fn force(cluster: &Cluster, name: &str, shape: PodShape, change: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
    let mut forced = pods::object(shape)?;
    forced["spec"]["nodeName"] = json!(node::NODE);
    change(&mut forced);
    cluster.api.create(PODS, &forced).await.map(drop).with_context(|| format!("creating {name} on the node"))
}

fn set_cards(cluster: &mut Cluster, is_there: impl Fn(usize) -> bool) -> anyhow::Result<()> {
    cluster.change_cards(|scenario| {
        for (index, card) in scenario.cards.iter_mut().enumerate() {
            card.state = if is_there(index) { CardState::Present } else { CardState::Lost };
        }
    })
}
