//! cluster-autoscaler with its provider `kwok`, which `KUBE_BIN_DIR` has as `cluster-autoscaler`; without it the scenario is
//! skipped.

use std::path::PathBuf;

use divvy_e2e::cluster::Cluster;
use divvy_e2e::files::free_address;
use divvy_e2e::program::Program;

use super::{Autoscaler, come_and_go, prepare, request, restore};

const TEMPLATE: &str = include_str!("../../../../../deploy/recipes/cluster-autoscaler/node-template.yaml");
const PROGRAM: &str = "cluster-autoscaler";
/// Where it says how it fares.
const STATUS: &str = "/api/v1/namespaces/default/configmaps/cluster-autoscaler-status";
const LOOKS: &str = r#"cluster_autoscaler_function_duration_seconds_count{function="main"}"#;

/// A group that has no nodes gets one for a pod.
pub(crate) async fn from_zero(cluster: &mut Cluster) -> anyhow::Result<()> {
    let Some(program) = cluster.given(PROGRAM) else {
        println!("  skipped: KUBE_BIN_DIR has no {PROGRAM}");
        return Ok(());
    };
    let template = cluster.files.write("node-template.yaml", TEMPLATE)?.display().to_string();
    cluster.kubectl.run(&["apply", "-f", &template]).await?;
    prepare(cluster).await?;
    let mut autoscaler = start(cluster, program)?;
    request(cluster).await?;
    let shown = come_and_go(cluster, &mut autoscaler).await;
    autoscaler.program.kill().await?;
    let restored = restore(cluster).await;
    let deleted = cluster.kubectl.run(&["delete", "-f", &template]).await;
    shown.and(restored).and(deleted.map(drop))?;
    cluster.api.delete(STATUS).await?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

fn start(cluster: &Cluster, path: PathBuf) -> anyhow::Result<Autoscaler> {
    let metrics = free_address()?;
    let kubeconfig = cluster.kubectl.kubeconfig().display().to_string();
    let args = vec![
        "--cloud-provider=kwok".to_owned(),
        "--namespace=default".to_owned(),
        format!("--kubeconfig={kubeconfig}"),
        format!("--address={metrics}"),
        "--leader-elect=false".to_owned(),
        "--v=4".to_owned(),
        // Shorter than by default, so that the node goes soon.
        "--scan-interval=1s".to_owned(),
        "--scale-down-delay-after-add=1s".to_owned(),
        "--scale-down-unneeded-time=1s".to_owned(),
        "--unremovable-node-recheck-timeout=1s".to_owned(),
    ];
    let mut program = Program::new(PROGRAM, path, args, &cluster.files.logs())
        .env("KUBECONFIG", kubeconfig)
        .env("POD_NAMESPACE", "default")
        .env("KWOK_PROVIDER_MODE", "local");
    program.start()?;
    Ok(Autoscaler { program, metrics, looks: LOOKS })
}
