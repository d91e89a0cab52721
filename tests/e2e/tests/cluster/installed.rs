//! Divvy as its users install it: replaced by another version, and taken off the cluster, while pods run.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use divvy_e2e::cluster::{Cluster, FOLLOWS, Look, NODE_PATH, PATIENCE};
use divvy_e2e::containers::{self, ContainerKey, Running};
use divvy_e2e::files::{RUN_DIRECTORY, STATE_DIRECTORY};
use divvy_e2e::node::NODE;
use divvy_e2e::pods::{self, DEPLOYMENTS};
use divvy_e2e::{image, view};
use serde_json::json;

const PODS: usize = 30;
/// Pods that come while another version does.
const BURST: usize = 20;

/// Both programs are replaced by an older version and back, by manifests or chart and by `rollout undo` or `helm rollback`, each
/// time while pods come: none is lost, and those that run go on with what they have.
pub(crate) async fn upgraded_and_rolled_back(cluster: &mut Cluster) -> anyhow::Result<()> {
    let mut number = BURST;
    cluster.create((0..number).map(pods::mixed)).await?;
    cluster.all_running(number).await?;
    let mut before = of_users(cluster.agree().await?);
    for what in ["the older version installed", "upgraded", "rolled back", "upgraded again"] {
        cluster.create((number..number + BURST).map(pods::mixed)).await?;
        number += BURST;
        match what {
            "the older version installed" => cluster.install_older().await?,
            "rolled back" => cluster.roll_back().await?,
            _ => cluster.upgrade().await?,
        }
        cluster.rolled_out().await?;
        cluster.all_running(number).await?;
        let running = of_users(cluster.agree().await?);
        containers::run_on(&before, &running)?;
        before = running;
        println!("  {what}: {number} pods run");
    }
    cluster.clear().await
}

/// Running containers without those of Divvy itself.
fn of_users(mut look: Look) -> BTreeMap<ContainerKey, Running> {
    look.running.retain(|(uid, _), _| look.node.pods.iter().any(|pod| pod.uid == *uid));
    look.running
}

/// Pods keep their GPUs when Divvy goes, and it finds them when it is back; without pods it leaves nothing.
pub(crate) async fn uninstalled_and_installed_again(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.create((0..PODS).map(pods::mixed)).await?;
    cluster.all_running(PODS).await?;
    let before = of_users(cluster.agree().await?);
    cluster.uninstall().await?;
    nothing_is_left_on_the_node(cluster).await?;
    containers::run_on(&before, &cluster.look()?.running)?;
    let shared = before.values().filter(|container| container.has_region).count();
    let kept = cluster.daemon.directories();
    ensure!(kept >= shared, "of {shared} running containers {kept} directories are left");
    println!("  {shared} containers run on, with {kept} directories");

    cluster.install_pods().await?;
    cluster.amounts_ready_beside_pods().await?;
    containers::run_on(&before, &cluster.agree().await?.running)?;
    cluster.clear().await?;
    cluster.uninstall().await?;
    nothing_is_left_on_the_node(cluster).await?;
    for directory in [RUN_DIRECTORY, STATE_DIRECTORY, "cdi"] {
        let left: Vec<_> = std::fs::read_dir(cluster.files.at(directory))?.filter_map(Result::ok).collect();
        ensure!(left.is_empty(), "{directory}: {left:?}");
    }
    definitions_stay_until_they_are_deleted(cluster).await?;
    cluster.install_pods().await?;
    cluster.amounts_ready().await
}

/// The node is drained and loses what a reboot takes; then it loses power with pods on it. It serves again both times.
pub(crate) async fn drained_and_rebooted(cluster: &mut Cluster) -> anyhow::Result<()> {
    const REPLICAS: usize = 6;
    let limits = json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4Gi", "nvidia.com/gpucores": "10"});
    let container = json!({
        "name": "main", "image": image::WORK, "imagePullPolicy": "Never", "resources": {"limits": limits},
        "args": ["-c", "exec /bin/busybox sleep 1000000"],
    });
    let labels = json!({"app": "web"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": REPLICAS, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
            },
        },
    });
    cluster.api.create(DEPLOYMENTS, &deployment).await?;
    cluster.all_running(REPLICAS).await?;
    cluster.agree().await?;
    // On a cluster of one node the disruption budget keeps a replica of the webhook.
    let others = "--pod-selector=app.kubernetes.io/name!=divvy-webhook";
    cluster.kubectl.run(&["drain", NODE, "--ignore-daemonsets", others, "--timeout=80s"]).await?;
    cluster.reboot().await?;
    cluster.kubectl.run(&["uncordon", NODE]).await?;
    cluster.rolled_out().await?;
    replicas_run(cluster, REPLICAS).await?;
    println!("  drained: {} containers run", agree_after_a_reboot(cluster).await?);
    cluster.reboot().await?;
    cluster.rolled_out().await?;
    replicas_run(cluster, REPLICAS).await?;
    println!("  without power: {} containers run", agree_after_a_reboot(cluster).await?);
    cluster.api.delete(&format!("{DEPLOYMENTS}/web")).await?;
    cluster.clear().await
}

/// How many containers run once all agree. The daemon doesn't believe a kubelet that has just started that a pod is gone, and
/// keeps its shares for twenty seconds.
async fn agree_after_a_reboot(cluster: &mut Cluster) -> anyhow::Result<usize> {
    let look = if let Ok(look) = cluster.agree().await { look } else { cluster.agree().await? };
    Ok(look.running.len())
}

/// Waits until so many run. Those that the kubelet starts before the daemon has registered are rejected, and replaced.
async fn replicas_run(cluster: &mut Cluster, replicas: usize) -> anyhow::Result<()> {
    cluster
        .until("replicas that run", 2 * PATIENCE, async |this| {
            let pods = this.list().await?;
            let running = pods.iter().filter(|pod| view::is_ready(pod) && !view::is_over(pod)).count();
            ensure!(running == replicas, "{running} of {} run", pods.len());
            Ok(Some(()))
        })
        .await
}

/// Doctor finds what is left, and its remedy removes it.
async fn definitions_stay_until_they_are_deleted(cluster: &mut Cluster) -> anyhow::Result<()> {
    for name in ["gpunodes.divvy.dev", "gpuquotas.divvy.dev"] {
        let definition = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        ensure!(cluster.api.find(&definition).await?.is_some(), "{name} is gone, and every object with it");
    }
    let place = cluster.files.at(".");
    // Its exit code says that something is wrong.
    let doctor = "kubectl divvy doctor || true";
    let said = cluster.shell(doctor, &place).await?;
    let remedy = "kubectl delete crd gpunodes.divvy.dev";
    ensure!(said.contains("leftovers of Divvy") && said.contains(remedy), "{said}");
    cluster.shell(remedy, &place).await?;
    let said = cluster.shell(doctor, &place).await?;
    ensure!(!said.contains("leftovers of Divvy"), "{said}");
    Ok(())
}

async fn nothing_is_left_on_the_node(cluster: &mut Cluster) -> anyhow::Result<()> {
    let node = cluster.api.get(NODE_PATH).await?;
    let words = ["divvy.dev/", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpu.count"];
    let parts = ["/metadata/labels", "/metadata/annotations", "/spec", "/status/capacity", "/status/allocatable"];
    let left: BTreeMap<&str, String> = parts
        .into_iter()
        .filter_map(|part| Some((part, node.pointer(part)?.to_string())))
        .filter(|(_, text)| words.iter().any(|word| text.contains(word)))
        .collect();
    ensure!(left.is_empty(), "{left:#?}");
    cluster
        .until("end of Divvy's pods", FOLLOWS, async |this| {
            let left = [this.pods_of("divvy-node").await?, this.pods_of("divvy-webhook").await?].concat();
            if left.is_empty() { Ok(Some(())) } else { bail!("{:?}", view::names(left.iter())) }
        })
        .await
}
