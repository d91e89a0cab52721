//! The aggregated API, as kubectl and kube-apiserver use it.

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_testkit::pods::PodShape;

const POD: &str = "aggregated";

/// Lists, a watch while a pod comes and goes, discovery, and a caller who isn't the front proxy.
pub(crate) async fn served(cluster: &mut Cluster) -> anyhow::Result<()> {
    let aggregated = cluster.switch_on_aggregated_api().await?;
    let infos = cluster.kubectl.run(&["get", "gpuinfos"]).await?;
    println!("{infos}");
    ensure!(infos.contains("node-a") && infos.contains("True"), "{infos}");
    let resources = cluster.kubectl.say(&["api-resources", "--api-group=metrics.nvidia.com"]).await?;
    ensure!(resources.answer.contains("podresources") && resources.warnings.is_empty(), "{resources:?}");

    let (mut watch, file) = cluster.kubectl.watch(&["get", "podresources"], &cluster.files.at("watched"))?;
    cluster.create([PodShape::new(POD).with(App, "main", &[("gpu", "1"), ("gpumem", "2048")])]).await?;
    cluster.all_running(1).await?;
    let name = format!("default.{POD}");
    let lines = |text: &str| text.lines().filter(|line| line.starts_with(&name)).count();
    let watched = async || anyhow::Ok(std::fs::read_to_string(&file).context("what kubectl watched")?);
    cluster.until("the pod in a watch", PATIENCE, async |_| Ok((lines(&watched().await?) > 0).then_some(()))).await?;
    let listed = cluster.kubectl.run(&["get", "podresources", &name, "--output=wide"]).await?;
    println!("{listed}");
    let json = cluster.kubectl.run(&["get", "podresources", &name, "--output=json"]).await?;
    let object: serde_json::Value = serde_json::from_str(&json)?;
    let device = &object["spec"]["containers_device"][0]["device_info"][0];
    ensure!(device["device_node"] == "node-a" && device["device_model"].is_string(), "{object}");
    let before = lines(&watched().await?);
    cluster.clear().await?;
    cluster
        .until("the pod's end in a watch", PATIENCE, async |_| Ok((lines(&watched().await?) > before).then_some(())))
        .await?;
    println!("{}", watched().await?);
    watch.kill().await?;

    // kube-apiserver asks for schemas again a minute after it failed to.
    cluster
        .until("schemas", PATIENCE, async |this| {
            let explained = this.kubectl.run(&["explain", "podresources.spec.containers_device"]).await?;
            Ok(explained.contains("device_info").then_some(()))
        })
        .await?;

    let address = aggregated.address;
    let raw = format!("https://{address}/apis/metrics.nvidia.com/v1alpha1/podresources");
    let forged =
        ["--insecure", "--silent", "--show-error", "--max-time", "5", "--header", "X-Remote-User: admin", &raw];
    let direct = tokio::process::Command::new("curl").args(forged).output().await.context("starting curl")?;
    let said = String::from_utf8_lossy(&direct.stderr).into_owned();
    ensure!(!direct.status.success() && direct.stdout.is_empty(), "a caller without certificate was answered");
    println!("  without the front proxy: {}", said.trim());
    cluster.switch_off_aggregated_api(aggregated).await
}
