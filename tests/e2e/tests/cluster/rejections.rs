//! Pods that the kubelet rejects before it asks the daemon.

use anyhow::ensure;
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::view;
use divvy_testkit::outside::SLOTS_PER_CARD;
use divvy_testkit::pods::PodShape;

use crate::{topology, versions};

/// Pairs of a pod that is rejected and one that isn't.
const PAIRS: usize = 6;
/// A NUMA node that no machine has.
const NOWHERE: u32 = 60;

/// Pods behind rejected ones are admitted while those still look as if they waited; before Kubernetes 1.34 they may fail, with
/// the reason.
pub(crate) async fn leave_others_alone(cluster: &mut Cluster) -> anyhow::Result<()> {
    behind(cluster, "SysctlForbidden", |pod| pod.with_sysctl("kernel.msgmax", "65536")).await
}

/// The same with a kubelet that wants a pod's devices on one NUMA node, where only one card is.
pub(crate) async fn leave_others_alone_on_one_numa_node(cluster: &mut Cluster) -> anyhow::Result<()> {
    topology::align(cluster, "pod", |card| if card == 0 { 0 } else { NOWHERE }).await?;
    // Its first container is like the others' only one, but together they need more slots than the card has.
    let more = SLOTS_PER_CARD.to_string();
    behind(cluster, "TopologyAffinityError", |pod| pod.with(App, "second", &[("gpu", &more), ("gpumem", "1Gi")]))
        .await?;
    cluster.renew().await
}

async fn behind(cluster: &mut Cluster, reason: &str, make: impl Fn(PodShape) -> PodShape) -> anyhow::Result<()> {
    let pod = |name: String| PodShape::new(name).with(App, "main", &[("gpu", "1"), ("gpumem", "1Gi")]);
    // The kubelet waits for the daemon's answer, so that all others are admitted without a turn of its loop between them.
    cluster.daemon.program.signal("STOP")?;
    cluster.create([pod("first".to_owned())]).await?;
    cluster.until_pod("first", is_bound).await?;
    let pair = |number| [make(pod(format!("rejected-{number}"))), pod(format!("next-{number}"))];
    cluster.create((0..PAIRS).flat_map(pair)).await?;
    for name in (0..PAIRS).flat_map(|number| [format!("rejected-{number}"), format!("next-{number}")]) {
        cluster.until_pod(&name, is_bound).await?;
    }
    cluster.daemon.program.signal("CONT")?;
    let told = versions::has_get(cluster).await?;
    let mut admitted = 0;
    for pod in cluster.all_settled(2 * PAIRS + 1).await? {
        let (name, failure) = (view::name(&pod), view::failure(&pod));
        let is_expected = if name.starts_with("rejected") {
            failure.starts_with(reason)
        } else {
            admitted += usize::from(!view::is_over(&pod));
            !view::is_over(&pod) || (!told && failure.contains("cannot tell which pod is being admitted"))
        };
        ensure!(is_expected, "{name}: {failure}");
    }
    println!("  {PAIRS} pods rejected with {reason}, {admitted} of {} admitted between them", PAIRS + 1);
    cluster.agree().await?;
    cluster.clear().await
}

fn is_bound(pod: &serde_json::Value) -> Option<()> {
    pod["spec"]["nodeName"].is_string().then_some(())
}
