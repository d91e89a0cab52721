//! Pods that the kubelet rejects before it asks the daemon.

use anyhow::ensure;
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::view;
use divvy_testkit::pods::PodShape;

/// Pairs of a pod that is rejected and one that isn't.
const PAIRS: usize = 6;

/// Pods behind rejected ones are admitted while those still look as if they waited.
pub(crate) async fn leave_others_alone(cluster: &mut Cluster) -> anyhow::Result<()> {
    let one: &[(&str, &str)] = &[("gpu", "1"), ("gpumem", "1Gi")];
    let pod = |name: String| PodShape::new(name).with(App, "main", one);
    let forbidden = |number| pod(format!("rejected-{number}")).with_sysctl("kernel.msgmax", "65536");
    // The kubelet waits for the daemon's answer, so that all others are admitted without a turn of its loop between them.
    cluster.daemon.program.signal("STOP")?;
    cluster.create([pod("first".to_owned())]).await?;
    cluster.until_pod("first", is_bound).await?;
    cluster.create((0..PAIRS).flat_map(|number| [forbidden(number), pod(format!("next-{number}"))])).await?;
    for name in (0..PAIRS).flat_map(|number| [format!("rejected-{number}"), format!("next-{number}")]) {
        cluster.until_pod(&name, is_bound).await?;
    }
    cluster.daemon.program.signal("CONT")?;
    for pod in cluster.all_settled(2 * PAIRS + 1).await? {
        let (name, failure) = (view::name(&pod), view::failure(&pod));
        let is_expected =
            if name.starts_with("rejected") { failure.starts_with("SysctlForbidden") } else { !view::is_over(&pod) };
        ensure!(is_expected, "{name}: {failure}");
    }
    println!("  {PAIRS} pods rejected for a forbidden sysctl, {} admitted between them", PAIRS + 1);
    cluster.agree().await?;
    cluster.clear().await
}

fn is_bound(pod: &serde_json::Value) -> Option<()> {
    pod["spec"]["nodeName"].is_string().then_some(())
}
