//! Autoscalers that add nodes, as deploy/recipes has them. The Nodes that their provider `kwok` makes have no machine: the scenario
//! writes what their kubelets and daemons would.

pub(crate) mod cluster_autoscaler;
pub(crate) mod karpenter;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use divvy_api::CardId;
use divvy_api::ContainerKind::App;
use divvy_api::annotation::{self, Planned};
use divvy_api::names::annotation::PLANNED;
use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, NODE_PATH, PATIENCE};
use divvy_e2e::fakes::{self, Fake, GPU_NODES, NODES};
use divvy_e2e::figures::sample;
use divvy_e2e::node::{NODE, of_cards};
use divvy_e2e::pages::page;
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::program::Program;
use divvy_e2e::view;
use divvy_testkit::pods::PodShape;
use serde_json::json;

use crate::gates;

const POD: &str = include_str!("../../../../deploy/recipes/pod.yaml");
const NAME: &str = "share";
/// Cards of a new node, and MiB of each: the recipes declare the amounts of these.
const CARDS: u64 = 8;
const MEMORY: u64 = 80 << 10;

/// An autoscaler that runs.
struct Autoscaler {
    program: Program,
    metrics: SocketAddr,
    /// Metric: how often it has looked at the pods that wait.
    looks: &'static str,
}

/// Leaves new nodes alone for the pod, and nobody who would mark them as gone.
async fn prepare(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    gates::configure(cluster, "gates").await?;
    cluster.kubectl.run(&["cordon", NODE]).await?;
    // The controller manager's work, by which autoscalers know it.
    cluster
        .until("taint of the cordoned node", PATIENCE, async |this| {
            let node = this.api.get(NODE_PATH).await?;
            let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
            Ok(taints.any(|taint| taint["key"] == "node.kubernetes.io/unschedulable").then_some(()))
        })
        .await?;
    cluster.control_plane.controller_manager.kill().await
}

/// Takes the node back, and away what is left of new ones.
async fn restore(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.kubectl.run(&["uncordon", NODE]).await?;
    for path in [NODES, GPU_NODES] {
        for name in new_ones(cluster, path).await? {
            let path = format!("{path}/{name}");
            cluster.api.patch(&path, Part::Object, &json!({"metadata": {"finalizers": null}})).await?;
            cluster.api.delete(&path).await?;
        }
    }
    cluster.control_plane.controller_manager.start_if_down()?;
    gates::configure(cluster, "extender").await
}

/// Names in a collection other than the node's.
async fn new_ones(cluster: &Cluster, path: &str) -> anyhow::Result<Vec<String>> {
    let list = cluster.api.get(path).await?;
    let names = list["items"].as_array().into_iter().flatten().map(view::name);
    Ok(names.filter(|name| *name != NODE).map(str::to_owned).collect())
}

/// Creates the recipe's pod.
async fn request(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.create_objects(vec![pods::runnable(POD)?]).await
}

/// New nodes come for a part of a GPU and for whole GPUs, and go with the pods.
async fn come_and_go(cluster: &mut Cluster, autoscaler: &mut Autoscaler) -> anyhow::Result<()> {
    one_node(cluster, autoscaler).await?;
    whole_gpus(cluster, autoscaler).await
}

/// One node that is new serves the pod: no other comes while the node has no GPUs yet, the pod is bound to its GPUs, and when the
/// pod is gone the node goes too.
async fn one_node(cluster: &mut Cluster, autoscaler: &mut Autoscaler) -> anyhow::Result<()> {
    let name = cluster
        .until("new node", PATIENCE, async |this| {
            autoscaler.program.check()?;
            Ok(new_ones(this, NODES).await?.pop())
        })
        .await?;
    let node = with_cards(&name);
    fakes::come_up(cluster, &node).await?;
    let before = autoscaler.looks().await?;
    cluster
        .until("second look at a node without GPUs", PATIENCE, async |_| {
            autoscaler.program.check()?;
            // The next one may have begun before the node was up.
            Ok((autoscaler.looks().await? >= before + 2.0).then_some(()))
        })
        .await?;
    only(cluster, &name).await?;
    fakes::register(cluster, &node).await?;
    bound(cluster, &node).await?;
    only(cluster, &name).await?;
    cluster.api.delete(&format!("{PODS}/{NAME}")).await?;
    none(cluster, autoscaler).await?;
    println!("  without the pod the node is gone");
    Ok(())
}

/// A whole GPU more than a node has gets two new nodes.
async fn whole_gpus(cluster: &mut Cluster, autoscaler: &mut Autoscaler) -> anyhow::Result<()> {
    let pod = |number| pods::plain(&PodShape::new(format!("whole-{number}")).with(App, "main", &[("gpu", "1")]));
    let begun = Instant::now();
    cluster.create_objects((0..=CARDS).map(pod).collect()).await?;
    let nodes = cluster
        .until("two new nodes", PATIENCE, async |this| {
            autoscaler.program.check()?;
            let nodes = new_ones(this, NODES).await?;
            Ok((nodes.len() >= 2).then_some(nodes))
        })
        .await?;
    let took = begun.elapsed();
    for node in nodes.iter().map(|name| with_cards(name)) {
        fakes::come_up(cluster, &node).await?;
        fakes::register(cluster, &node).await?;
    }
    let bound = cluster
        .until("whole GPUs that are all bound", PATIENCE, async |this| {
            let mut bound = BTreeMap::<String, u64>::new();
            for pod in this.list().await? {
                *bound.entry(pod["spec"]["nodeName"].as_str().context("not bound")?.to_owned()).or_default() += 1;
            }
            Ok(Some(bound))
        })
        .await?;
    ensure!(bound.values().all(|pods| *pods <= CARDS), "bound are {bound:?}");
    ensure!(new_ones(cluster, NODES).await? == nodes, "nodes beside {nodes:?}");
    println!("  {} whole GPUs: two nodes after {took:.1?}, which hold {bound:?}", CARDS + 1);
    cluster.api.delete(PODS).await?;
    none(cluster, autoscaler).await
}

/// Waits until all new nodes are gone.
async fn none(cluster: &mut Cluster, autoscaler: &mut Autoscaler) -> anyhow::Result<()> {
    cluster
        .until("end of the new nodes", 2 * PATIENCE, async |this| {
            autoscaler.program.check()?;
            Ok(new_ones(this, NODES).await?.is_empty().then_some(()))
        })
        .await
}

async fn only(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let nodes = new_ones(cluster, NODES).await?;
    ensure!(nodes == [name], "one pod has new nodes {nodes:?}");
    Ok(())
}

/// Waits until the pod is bound to the node. Whoever is first has placed it: the leader, on cards of the node, or kube-scheduler.
async fn bound(cluster: &mut Cluster, node: &Fake) -> anyhow::Result<()> {
    let pod = cluster.until_pod(NAME, |pod| pod["spec"]["nodeName"].is_string().then(|| pod.clone())).await?;
    ensure!(pod["spec"]["nodeName"] == node.name, "bound to {} instead of {}", pod["spec"]["nodeName"], node.name);
    let Some(planned) = pod["metadata"]["annotations"][PLANNED].as_str() else {
        println!("  the pod is bound without a plan to the only new node, {}", node.name);
        return Ok(());
    };
    let planned: Planned = annotation::decode(planned)?;
    let chosen: Vec<_> = planned.containers.values().flat_map(|cards| &cards.chosen).map(CardId::as_str).collect();
    let is_of_node = |card: &&str| node.cards.iter().any(|own| own["uuid"] == *card);
    ensure!(planned.node == node.name && chosen.len() == 1 && chosen.iter().all(is_of_node), "{planned:?}");
    println!("  the pod is bound to {chosen:?} of the only new node, {}", node.name);
    Ok(())
}

/// Such a node as the recipes describe.
fn with_cards(name: &str) -> Fake {
    let mut amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110"});
    for (resource, amount) in of_cards(CARDS, CARDS * MEMORY) {
        amounts[resource] = json!(amount.to_string());
    }
    let card = |number: u64| {
        json!({
            "uuid": format!("GPU-{name}-{number}"), "model": "NVIDIA H100 80GB HBM3", "memoryMi": MEMORY,
            "health": "Healthy",
        })
    };
    Fake { name: name.to_owned(), amounts, cards: (0..CARDS).map(card).collect() }
}

// === impl Autoscaler ===

impl Autoscaler {
    async fn looks(&self) -> anyhow::Result<f64> {
        sample(&page(self.metrics, "metrics").await?, self.looks).with_context(|| format!("no {}", self.looks))
    }
}
