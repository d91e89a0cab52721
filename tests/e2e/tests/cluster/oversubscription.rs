//! Pods that have more memory together than their card, on a real kubelet.

use anyhow::{Context as _, ensure};
use divvy_api::names::annotation as key;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::view;
use divvy_testkit::outside::PodView;
use serde_json::{Value, json};

use crate::guests::{self, Guests};

/// Pods on one card.
const PODS: [&str; 2] = ["one", "other"];

/// How many times a card's memory is promised: little, as the machine that this runs on has to have the rest.
const SCALE: f64 = 1.1;

/// Two pods have more than half of a card's memory each, before and after daemon and kubelet were killed, and no pod that
/// doesn't ask for it comes beside them; nor does a third, for whose part the host has no memory.
pub(crate) async fn two_on_one_card(cluster: &mut Cluster) -> anyhow::Result<()> {
    let guests = Guests::install(cluster).await?;
    let on_card = (cluster.scenario.cards[0].memory_total >> 30) / 2;
    let host = on_card / 10;
    let gib = on_card + host;
    let keys = json!({
        "tier": "shim", "libdivvyPath": guests::library().await?, "deviceListStrategy": "envvar",
        "memoryScale": SCALE, "oversubscribeHostMemory": format!("{}Gi", 2 * host),
    });
    cluster.restart_daemon(&keys).await?;
    let asking = |name: &str, gib: u64| -> anyhow::Result<Value> {
        let mut pod = guests.pod(name, gib, 10)?;
        pod["metadata"]["annotations"][key::OVERSUBSCRIBE] = json!("true");
        Ok(pod)
    };
    for pod in PODS {
        // The second is admitted once the kubelet knows what the first has left.
        cluster.create_objects(vec![asking(pod, gib)?]).await?;
        cluster
            .until(pod, PATIENCE, async |this| {
                Ok(this
                    .list()
                    .await?
                    .iter()
                    .find(|it| view::name(it) == pod)
                    .filter(|it| view::is_ready(it))
                    .map(|_| ()))
            })
            .await?;
    }
    cluster.agree().await?;
    for pod in PODS {
        guests.has_memory(cluster, pod, gib, 0).await?;
    }
    let node = cluster.gpu_node().await?;
    let status = node.status.unwrap_or_default();
    let of_host: Vec<u64> = status.shares.iter().map(|share| share.share.host.as_mib()).collect();
    ensure!(of_host == [host << 10; 2], "host memory of the shares: {of_host:?} MiB");
    println!("  two pods with {gib} GiB each, {host} GiB of each on the host");
    // Other cards have memory, but the node has none in place of it.
    let mut third = asking("third", 1)?;
    third["metadata"]["annotations"].as_object_mut().context("annotations")?.remove(key::CARD_UUID);
    for (name, object, reason) in [
        ("ordinary", guests.pod("ordinary", 1, 10)?, "holding pods with oversubscribed memory"),
        ("third", third, "short of host memory"),
    ] {
        cluster.create_objects(vec![object]).await?;
        let failure = cluster.until_pod(name, |pod| view::is_over(pod).then(|| view::failure(pod))).await?;
        ensure!(failure.contains(reason), "{name}: {failure}");
        println!("  {name}: {failure}");
    }
    cluster.kill_daemon().await?;
    cluster.kubelet.kill().await?;
    cluster.kubelet.start()?;
    cluster.node_ready().await?;
    cluster.start_daemon().await?;
    let node = cluster.agree().await?.node;
    for pod in PODS {
        let named = |view: &&PodView| view.name == format!("default/{pod}");
        let runs = node.pods.iter().find(named).is_some_and(|pod| pod.containers.iter().all(|it| it.running));
        ensure!(runs, "{pod} doesn't run after daemon and kubelet were killed");
    }
    cluster.renew().await
}
