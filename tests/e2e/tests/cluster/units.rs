//! Units of memory and compute as devices: nobody writes the Node's status but the kubelet.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::ensure;
use divvy_api::ContainerKind::{App, Init, Sidecar};
use divvy_e2e::cluster::{Cluster, NODE_PATH, PATIENCE};
use divvy_e2e::containers::{self, ContainerKey};
use divvy_e2e::node::{CARD_MEMORY, CARDS};
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::view::{MEMORY_UNIT, MEMORY_UNITS};
use divvy_e2e::{audit, checkpoint, view};
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

use crate::bursts::{refused, say};

const CORES: &str = "nvidia.com/gpucores";
const COUNT: usize = 60;

/// Sixty pods at once get what they ask for in units, which the kubelet counts.
pub(crate) async fn counted_by_the_kubelet(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.restart_daemon(&json!({"advertise": "devices"})).await?;
    let cards = u64::from(CARDS);
    cluster.until_allocatable(CORES, cards * 100).await?;
    cluster.until_allocatable(MEMORY_UNITS, cards * (CARD_MEMORY >> 20) / MEMORY_UNIT.as_mib()).await?;
    cluster
        .until("Node without amounts", PATIENCE, async |this| {
            let node = this.api.get(NODE_PATH).await?;
            Ok(node["status"]["capacity"].get("nvidia.com/gpumem").is_none().then_some(()))
        })
        .await?;
    let (writes, started) = (audit::writes(&cluster.files)?, Instant::now());
    cluster.create_objects((0..COUNT).map(|number| pods::plain(&in_units(number))).collect()).await?;
    cluster.all_running(COUNT).await?;
    println!("  {COUNT} pods run after {:.1?}", started.elapsed());
    let before = cluster.agree().await?;
    let calls = cluster.calls().await?;
    say(&calls);
    ensure!(refused(&calls) == 0, "calls were refused: {calls:?}");
    let (cores, memory) = (counted(cluster, CORES).await?, counted(cluster, MEMORY_UNITS).await?);
    println!("  the kubelet has given out {cores} units of compute and {memory} of memory");
    cluster.kill_daemon().await?;
    cluster.start_daemon().await?;
    cluster.restart_kubelet().await?;
    let running = COUNT - delete_failed(cluster, COUNT).await?;
    let look = cluster.agree().await?;
    containers::keep_their_shares(&before.running, &look.running)?;
    let card: &[(&str, &str)] = &[("gpu", "1"), ("gpucores", "100")];
    let many = (0..=CARDS).fold(PodShape::new("many"), |pod, number| pod.with(App, &format!("c{number}"), card));
    let alone = PodShape::new("alone").with(App, "main", &[("gpucores", "30")]);
    cluster.create_objects(vec![pods::plain(&many), pods::plain(&alone)]).await?;
    let said = cluster.until_pod("many", view::unschedulable).await?;
    println!("  scheduler: {said}");
    ensure!(said.contains(&format!("Insufficient {CORES}")), "the scheduler says: {said}");
    let said = cluster.until_pod("alone", |pod| view::is_over(pod).then(|| view::failure(pod))).await?;
    println!("  daemon: {said}");
    ensure!(said.contains("requests nvidia.com/gpucores but no GPU"), "the daemon says: {said}");
    cluster.api.delete(&format!("{PODS}/alone")).await?;
    cluster.api.delete(&format!("{PODS}/many")).await?;
    cluster.create_objects(vec![pods::plain(&in_units(COUNT))]).await?;
    let late = delete_failed(cluster, running + 1).await?;
    cluster.all_running(running + 1 - late).await?;
    cluster.agree().await?;
    let writes = audit::since(&writes, audit::writes(&cluster.files)?);
    println!("  daemon's writes: {writes:?}");
    let to_node = writes.keys().find(|(what, _)| what.contains(" nodes"));
    ensure!(to_node.is_none(), "the daemon wrote to its Node: {to_node:?}");
    cluster.renew().await
}

/// Waits until `count` pods run or are over, deletes those that a restart of the kubelet failed, and returns their number.
///
/// A kubelet that has started admits its pods once more, and fails those of which an init container has ended if a plugin
/// of theirs isn't back by then (kubernetes#124345). It takes half a second over a list of some thousand units, and may
/// report a failure later.
async fn delete_failed(cluster: &mut Cluster, count: usize) -> anyhow::Result<usize> {
    let pods = cluster.all_settled(count).await?;
    let failed: Vec<&Value> = pods.iter().filter(|pod| view::is_over(pod)).collect();
    for pod in &failed {
        let said = view::failure(pod);
        ensure!(said.contains("no healthy devices present"), "{}: {said}", view::name(pod));
        cluster.api.delete(&format!("{PODS}/{}", view::name(pod))).await?;
    }
    println!("  {} pods failed over the kubelet's restart, before it had our lists", failed.len());
    Ok(failed.len())
}

/// Units that the kubelet has on record, which must be those that containers ask for.
async fn counted(cluster: &mut Cluster, resource: &str) -> anyhow::Result<usize> {
    let asked = |pod: &Value| -> Vec<(ContainerKey, usize)> {
        let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array().cloned());
        let all = lists.into_iter().flatten().flatten();
        let count = |container: Value| {
            let count = container["resources"]["limits"][resource].as_str()?.parse().ok()?;
            Some(((view::uid(pod).to_owned(), container["name"].as_str()?.to_owned()), count))
        };
        all.filter_map(count).collect()
    };
    let asked: BTreeMap<ContainerKey, usize> = cluster.list().await?.iter().flat_map(asked).collect();
    let given = checkpoint::counts(resource)?;
    ensure!(asked == given, "{resource}: asked for {asked:?}, on record {given:?}");
    Ok(given.values().sum())
}

/// Pod `number` of a mixed sixty.
fn in_units(number: usize) -> PodShape {
    let part: &[(&str, &str)] = &[("gpu", "1"), ("gpucores", "5"), ("gpumem-256mi", "16")];
    let little: &[(&str, &str)] = &[("gpu", "1"), ("gpumem-256mi", "8")];
    let pod = |what: &str| PodShape::new(format!("{what}-{number}"));
    match number % 10 {
        0..5 => pod("infer").with(App, "main", part),
        5 => pod("bench").with(App, "main", &[("gpu", "1"), ("gpucores", "6")]),
        6 => pod("pair").with(App, "left", part).with(App, "right", little).with(App, "log", &[]),
        7 => pod("etl").with(Init, "warm-up", part).with(App, "main", part),
        8 => pod("mesh").with(Sidecar, "codec", little).with(App, "main", part),
        _ => pod("ring").with(App, "main", &[("gpu", "2"), ("gpucores", "4"), ("gpumem-256mi", "8")]),
    }
}
