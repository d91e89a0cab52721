//! Nodes that nobody runs: objects alone, for a scheduler.

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::Part;
use crate::cluster::{Cluster, NODE_PATH, PATIENCE};
use crate::node::{NODE, whole};
use crate::view;

/// All Nodes.
pub const NODES: &str = "/api/v1/nodes";
/// And what their daemons report.
pub const GPU_NODES: &str = "/apis/divvy.dev/v1alpha1/gpunodes";
/// Created at a time.
const AT_ONCE: usize = 50;

/// A node and its daemon's report.
#[derive(Clone, Debug)]
pub struct Fake {
    /// Name of the Node and its `GpuNode`.
    pub name: String,
    /// Amounts by resource.
    pub amounts: Value,
    /// As in the `GpuNode`'s status; without any there is no `GpuNode`.
    pub cards: Vec<Value>,
}

/// Takes the real node out of the cluster, with all that would write to nodes or refuse to have them written.
pub async fn instead_of_the_node(cluster: &mut Cluster) -> anyhow::Result<()> {
    // Nobody may write another node's GpuNode.
    cluster.delete(&["policy"]).await?;
    let anybodys =
        json!({"apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "b"}, "spec": {}});
    cluster
        .until("API server without policies", PATIENCE, async |this| {
            this.api.create(&format!("{GPU_NODES}?dryRun=All"), &anybodys).await.map(|_| Some(()))
        })
        .await?;
    remove_the_node(cluster).await
}

/// Takes the real node out of the cluster, and the controller manager, which marks nodes without a kubelet as gone.
pub async fn remove_the_node(cluster: &mut Cluster) -> anyhow::Result<()> {
    for program in [&mut cluster.control_plane.controller_manager, &mut cluster.kubelet, &mut cluster.daemon.program] {
        program.kill().await?;
    }
    cluster.api.delete(&format!("{GPU_NODES}/{NODE}")).await?;
    cluster.api.delete(NODE_PATH).await
}

/// Creates them, each chunk in any order.
pub async fn make(cluster: &Cluster, fakes: Vec<Fake>) -> anyhow::Result<()> {
    let mut fakes = fakes.into_iter().peekable();
    while fakes.peek().is_some() {
        let mut made = JoinSet::new();
        for Fake { name, amounts, cards } in fakes.by_ref().take(AT_ONCE) {
            let api = cluster.api.clone();
            made.spawn(async move {
                let path = format!("{NODES}/{name}");
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
                let node = api.create(NODES, &node).await?;
                api.patch(&path, Part::Status, &status(&amounts)).await?;
                api.patch(&path, Part::Object, &json!({"spec": {"taints": null}})).await?;
                if cards.is_empty() {
                    return Ok(());
                }
                api.create(GPU_NODES, &gpu_node(&node)).await?;
                api.patch(&format!("{GPU_NODES}/{name}"), Part::Status, &report(&cards)).await.map(drop)
            });
        }
        made.join_all().await.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
    }
    Ok(())
}

/// A node that an autoscaler made is up, as its kubelet and the node controller report it: Ready, and without GPUs as no device
/// plugin has registered yet.
pub async fn come_up(cluster: &Cluster, node: &Fake) -> anyhow::Result<()> {
    let mut amounts = node.amounts.clone();
    for (resource, _) in whole() {
        amounts[resource] = Value::Null;
    }
    offer(cluster, &node.name, &amounts).await?;
    let path = format!("{NODES}/{}", node.name);
    cluster.api.patch(&path, Part::Object, &json!({"spec": {"taints": null}})).await.map(drop)
}

/// The daemon of that node reports the GPUs, with its rights on that node alone, and registers them with the kubelet.
pub async fn register(cluster: &Cluster, node: &Fake) -> anyhow::Result<()> {
    let bound = format!("--bound-object-name={}", node.name);
    let args = ["create", "token", "divvy-node", "--namespace=divvy-system", "--bound-object-kind=Node", &bound];
    let token = cluster.files.write("new-node-token", cluster.kubectl.run(&args).await?)?;
    let text = std::fs::read_to_string(cluster.kubectl.kubeconfig())?;
    let mut config: Value = serde_json::from_str(&text).context("the administrator's kubeconfig")?;
    config["users"][0]["user"] = json!({"tokenFile": token});
    let daemon = cluster.kubectl.with(&cluster.files.write("new-node.kubeconfig", config.to_string())?);
    let mut object = gpu_node(&cluster.api.get(&format!("{NODES}/{}", node.name)).await?);
    object["status"] = report(&node.cards)["status"].take();
    let file = cluster.files.write("new-gpu-node.json", object.to_string())?.display().to_string();
    daemon.run(&["create", "--filename", &file]).await?;
    daemon.run(&["apply", "--server-side", "--subresource=status", "--filename", &file]).await?;
    offer(cluster, &node.name, &node.amounts).await
}

/// Has a node offer these amounts.
pub async fn offer(cluster: &Cluster, name: &str, amounts: &Value) -> anyhow::Result<()> {
    cluster.api.patch(&format!("{NODES}/{name}"), Part::Status, &status(amounts)).await.map(drop)
}

fn status(amounts: &Value) -> Value {
    let now = Timestamp::now().to_string();
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake", "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    });
    json!({"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}})
}

fn gpu_node(node: &Value) -> Value {
    let (name, uid) = (view::name(node), view::uid(node));
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
    json!({
        "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode",
        "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {},
    })
}

fn report(cards: &[Value]) -> Value {
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Registered", "message": "fake",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    json!({"status": {
        "cards": cards, "shares": [], "tier": "accounting", "scales": {"memory": 100, "cores": 100},
        "ledgerRevision": 1, "conditions": [ready],
    }})
}
