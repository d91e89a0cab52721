//! `kubectl divvy top`, by API server, kubelet and container runtime.

use anyhow::{Context as _, ensure};
use clap::{Args as _, Command, FromArgMatches as _};
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::node::NODE;
use divvy_e2e::pages::page;
use divvy_e2e::{image, view};
use divvy_kubectl::view::top::{self, TopArgs};
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/divvy-system/pods";

/// The daemon's page of usage is read by forwarding a port, and in no other way.
pub(crate) async fn through_a_forwarded_port(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.restart_daemon(&json!({"adminAddress": "127.0.0.1:9404"})).await?;
    cluster.create([PodShape::new("holder").with(App, "main", &[("gpu", "1"), ("gpumem", "1Gi")])]).await?;
    cluster.all_running(1).await?;
    let path = stand_for_the_daemons_pod(cluster).await?;
    let shown: Value = serde_json::from_str(&usage(cluster).await?)?;
    let holders = shown["nodes"][0]["containers"].as_array().context("containers")?;
    ensure!(shown["nodes"][0]["node"] == NODE && holders.len() == 1 && holders[0]["pod"] == "holder", "{shown}");
    println!("  kubectl divvy top: {} on {}", holders[0]["pod"], holders[0]["card"]);

    for name in ["usage", "config"] {
        let open = page(cluster.daemon.address, name).await?;
        ensure!(open.is_empty(), "/{name} at listenAddress: {open}");
    }
    // Nobody listens at the port.
    cluster.restart_daemon(&json!({"adminAddress": "127.0.0.1:0"})).await?;
    let refused = usage(cluster).await.err().map(|error| error.to_string()).unwrap_or_default();
    println!("  {refused}");
    ensure!(refused.contains("it is another version, or its adminAddress has another port"), "{refused}");
    cluster.api.delete(&path).await?;
    cluster.clear().await
}

/// Creates a pod in the place of the daemon's, which is a process of the host here: it shares the host's network, and its port
/// `http` is the daemon's. Returns its path.
async fn stand_for_the_daemons_pod(cluster: &mut Cluster) -> anyhow::Result<String> {
    let port = json!({"name": "http", "containerPort": cluster.daemon.address.port()});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "divvy-node-a", "labels": {"app.kubernetes.io/name": "divvy-node"}},
        "spec": {
            "nodeName": NODE, "hostNetwork": true, "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": image::WORK, "imagePullPolicy": "Never", "ports": [port],
                "args": ["-c", "exec /bin/busybox sleep 1000000"],
            }],
        },
    });
    cluster.api.create(PODS, &pod).await?;
    let path = format!("{PODS}/divvy-node-a");
    cluster
        .until("the pod in the daemon's place", PATIENCE, async |this| {
            Ok(this.api.find(&path).await?.filter(view::is_ready).map(drop))
        })
        .await?;
    Ok(path)
}

async fn usage(cluster: &Cluster) -> anyhow::Result<String> {
    let kubeconfig = cluster.kubectl.kubeconfig().display().to_string();
    let line = ["top", "-o", "json", "--request-timeout", "30s", "--kubeconfig", &kubeconfig];
    let matches = TopArgs::augment_args(Command::new("top")).try_get_matches_from(line)?;
    let told = top::run(TopArgs::from_arg_matches(&matches)?).await?;
    ensure!(!told.incomplete, "{}", told.remarks.join("; "));
    Ok(told.answer)
}
