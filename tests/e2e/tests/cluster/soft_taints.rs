//! Taints that lead pods without GPUs away from free GPUs, on a real API server with the rights and policies that are
//! installed.

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_api::names::GATE;
use divvy_api::names::taint::{EFFECT, FREE_GPUS};
use divvy_e2e::cluster::{Cluster, NODE_PATH, PATIENCE};
use divvy_e2e::node::NODE;
use divvy_e2e::pods::{self, PODS};
use divvy_testkit::binaries::Binaries;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};
use tokio::process::Command;

/// Somebody else's.
const FOREIGN: &str = "example.com/slow-disk";

/// They come and go beside another taint, the account that writes them may write nothing else, and an uninstallation removes
/// them with all else that Nodes carry.
pub(crate) async fn beside_others(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    cluster.kubectl.run(&["taint", "node", NODE, &format!("{FOREIGN}:{EFFECT}")]).await?;
    until_tainted(cluster, &[FOREIGN, FREE_GPUS]).await?;
    may_do_no_more(cluster).await?;
    cluster.webhook.configure(&json!({"softTaints": "off"})).await?;
    until_tainted(cluster, &[FOREIGN]).await?;
    cluster.webhook.configure(&json!({"softTaints": "on"})).await?;
    until_tainted(cluster, &[FOREIGN, FREE_GPUS]).await?;
    cluster.stop_webhook().await?;
    uninstall(cluster).await?;
    until_tainted(cluster, &[FOREIGN]).await?;
    let node = cluster.api.get(NODE_PATH).await?;
    // Amounts by their whole names: units of memory, of a scenario before this one, are the kubelet's to remove.
    let amounts = ["gpumem", "gpumem-percentage", "gpucores"].map(|amount| format!("\"nvidia.com/{amount}\""));
    for left in ["divvy.dev/", "nvidia.com/gpu.count"].into_iter().chain(amounts.iter().map(String::as_str)) {
        let [metadata, status] = ["metadata", "status"].map(|part| {
            let mut part = node[part].clone();
            part["managedFields"].take();
            part.to_string()
        });
        ensure!(!metadata.contains(left) && !status.contains(left), "{left} is left: {metadata} {status}");
    }
    cluster.kubectl.run(&["taint", "nodes", "--all", &format!("{FOREIGN}-")]).await?;
    cluster.start_daemon().await?;
    cluster.amounts_ready().await
}

/// Runs what the Job of `deploy/uninstall` runs, with its rights. No node is labelled for the DaemonSet.
async fn uninstall(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.kill_daemon().await?;
    let mut waits = pods::plain(&PodShape::new("waits").with(App, "main", &[("gpu", "1")]));
    waits["spec"]["schedulingGates"] = json!([{"name": GATE}, {"name": "example.com/other"}]);
    cluster.create_objects(vec![waits]).await?;
    cluster.apply(&["../uninstall/uninstall"]).await?;
    let token = ["create", "token", "divvy-uninstall", "--namespace=divvy-system"];
    let token = cluster.files.write("uninstall-token", cluster.kubectl.run(&token).await?)?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(cluster.files.at("divvy-webhook.kubeconfig"))?)?;
    config["users"][0]["user"]["tokenFile"] = json!(token);
    config["contexts"][0]["context"]["namespace"] = json!("divvy-system");
    let kubeconfig = cluster.files.write("divvy-uninstall.kubeconfig", config.to_string())?;
    let mut job = Command::new(Binaries::get(true).await?.daemon);
    job.args(["--uninstall=cluster", "--node-name", NODE, "--kubeconfig"]).arg(kubeconfig).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, job.output()).await.context("the uninstallation hangs")??;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}: {said}", output.status);
    ensure!(said.contains("removed: taint divvy.dev/free-gpus of Node"), "{said}");
    let waits = format!("{PODS}/waits");
    let gates = cluster.api.get(&waits).await?["spec"]["schedulingGates"].take();
    ensure!(gates == json!([{"name": "example.com/other"}]), "{gates}: {said}");
    cluster.api.delete(&waits).await?;
    cluster.delete(&["../uninstall/uninstall"]).await
}

async fn until_tainted(cluster: &mut Cluster, keys: &[&str]) -> anyhow::Result<()> {
    cluster
        .until(&format!("taints {keys:?}"), PATIENCE, async |this| {
            let node = this.api.get(NODE_PATH).await?;
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let present: Vec<&str> = taints.iter().filter_map(|taint| taint["key"].as_str()).collect();
            ensure!(present == keys, "there are {present:?}");
            Ok(Some(()))
        })
        .await
}

async fn may_do_no_more(cluster: &Cluster) -> anyhow::Result<()> {
    let webhook = cluster.kubectl.with(&cluster.files.at("divvy-webhook.kubeconfig"));
    let cases: [(&[&str], _); 4] = [
        (&["label", "node", NODE, "a=b"], "not metadata labels"),
        (&["patch", "node", NODE, "--patch", r#"{"spec": {"unschedulable": true}}"#], "not spec unschedulable"),
        (&["taint", "node", NODE, "example.com/slow-disk-"], "leaves others as they are"),
        (&["taint", "node", NODE, "divvy.dev/free-gpus:NoSchedule"], "leaves others as they are"),
    ];
    for (args, words) in cases {
        let said = webhook.run(args).await.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(said.contains(words), "kubectl {}: \"{said}\" doesn't say \"{words}\"", args.join(" "));
    }
    Ok(())
}
