//! How many pods a second kube-scheduler places, with the extender and without: a thousand nodes that nobody runs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use divvy_contract::ContainerKind::App;
use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, NODE_PATH};
use divvy_e2e::pods::PODS;
use divvy_e2e::webhook::Webhook;
use divvy_e2e::{audit, install};
use divvy_playground::pods::PodShape;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const NODES: usize = 1000;
const CARDS: usize = 8;
const MANY: usize = 1000;
const ROUNDS: usize = 10;
const NODE_LIST: &str = "/api/v1/nodes";
const GPU_NODES: &str = "/apis/divvy.dev/v1alpha1/gpunodes";
/// Longest wait for a run.
const RUN: Duration = Duration::from_secs(180);

/// Interleaved runs of a scheduler alone, with a shortlist of one node, and with one of sixteen.
pub(crate) async fn throughput(cluster: &mut Cluster) -> anyhow::Result<()> {
    Webhook::start(cluster).await?;
    Webhook::unasked(cluster).await?;
    // Nobody may write another node's GpuNode, and nobody marks nodes without a kubelet as gone.
    install::delete(cluster, &["policy"]).await?;
    let anybodys =
        json!({"apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "b"}, "spec": {}});
    cluster
        .until("API server without policies", RUN, async |this| {
            this.api.create(&format!("{GPU_NODES}?dryRun=All"), &anybodys).await.map(|_| Some(()))
        })
        .await?;
    cluster.api.patch(NODE_PATH, Part::Object, &json!({"spec": {"unschedulable": true}})).await?;
    for program in [&mut cluster.control_plane.controller_manager, &mut cluster.kubelet, &mut cluster.daemon.program] {
        program.kill().await?;
    }
    make_nodes(cluster).await?;
    let mut rates: BTreeMap<Option<u32>, Vec<f64>> = BTreeMap::new();
    for round in 0..ROUNDS {
        for shortlist in [None, Some(1), Some(16)] {
            let rate =
                run(cluster, shortlist).await.with_context(|| format!("round {round}, shortlist {shortlist:?}"))?;
            rates.entry(shortlist).or_default().push(rate);
        }
        let last = rates.iter().map(|(shortlist, rates)| format!("{shortlist:?} {:.0}", rates.last().unwrap_or(&0.0)));
        println!("  round {round}, pods a second: {}", last.collect::<Vec<_>>().join(", "));
    }
    for replica in &cluster.webhook.replicas {
        println!("  resident with {NODES} nodes, MiB now and at most: {:?}", replica.program.memory());
    }
    let alone = &rates[&None];
    for (shortlist, budget) in [(1, 1.1), (16, 0.9)] {
        let mut ratios: Vec<f64> =
            rates[&Some(shortlist)].iter().zip(alone).map(|(with, without)| with / without).collect();
        ratios.sort_by(f64::total_cmp);
        let [least, .., most] = &*ratios else { anyhow::bail!("two rounds are wanted") };
        let median = f64::midpoint(ratios[ROUNDS / 2 - 1], ratios[ROUNDS / 2]);
        println!("  shortlist {shortlist}: {median:.2} of the scheduler alone ({least:.2} to {most:.2})   ≥ {budget}");
    }
    Ok(())
}

/// Pods a second between the first tenth and 95 %.
async fn run(cluster: &mut Cluster, shortlist: Option<u32>) -> anyhow::Result<f64> {
    cluster.control_plane.scheduler.kill().await?;
    if let Some(shortlist) = shortlist {
        cluster.webhook.configure(&json!({"shortlist": shortlist})).await?;
        Webhook::ready(cluster).await?;
        cluster.until("leader", RUN, async |this| Ok(this.webhook.leader().await)).await?;
    }
    cluster.create((0..MANY).map(pod)).await?;
    let before = audit::bindings(&cluster.files)?.len();
    Webhook::schedule(cluster, shortlist.is_some()).await?;
    cluster
        .until("pods that all have a node", RUN, async |this| {
            let waiting = this.api.get(&format!("{PODS}?fieldSelector=spec.nodeName=&limit=1")).await?;
            Ok(waiting["items"].as_array().is_none_or(Vec::is_empty).then_some(()))
        })
        .await?;
    let mut times = audit::bindings(&cluster.files)?.split_off(before);
    times.sort_by(f64::total_cmp);
    ensure!(times.len() >= MANY, "{} bindings of {MANY} pods", times.len());
    let (first, last) = (MANY / 10, MANY * 95 / 100);
    cluster.api.delete(PODS).await?;
    cluster.until("end of the pods", RUN, async |this| Ok(this.list().await?.is_empty().then_some(()))).await?;
    let count = u32::try_from(last - first)?;
    Ok(f64::from(count) / (times[last] - times[first]))
}

fn pod(number: usize) -> PodShape {
    let amounts: [(&str, &str); 3] = match number % 4 {
        0 => [("gpu", "1"), ("gpumem", "4Gi"), ("gpucores", "10")],
        1 => [("gpu", "1"), ("gpumem", "8Gi"), ("gpucores", "25")],
        2 => [("gpu", "1"), ("gpumem", "16Gi"), ("gpucores", "50")],
        _ => [("gpu", "1"), ("gpumem", "2Gi"), ("gpucores", "5")],
    };
    PodShape::new(format!("p-{number}")).with(App, "main", &amounts)
}

async fn make_nodes(cluster: &Cluster) -> anyhow::Result<()> {
    for chunk in (0..NODES).collect::<Vec<_>>().chunks(50) {
        let mut made = JoinSet::new();
        for number in chunk {
            let (api, name) = (cluster.api.clone(), format!("fake-{number}"));
            made.spawn(async move {
                let path = format!("{NODE_LIST}/{name}");
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
                let node = api.create(NODE_LIST, &node).await?;
                api.patch(&path, Part::Status, &json!({"status": status()})).await?;
                api.patch(&path, Part::Object, &json!({"spec": {"taints": null}})).await?;
                let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]});
                let gpu_node = json!({
                    "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode",
                    "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {},
                });
                api.create(GPU_NODES, &gpu_node).await?;
                api.patch(&format!("{GPU_NODES}/{name}"), Part::Status, &json!({"status": report(&name)})).await
            });
        }
        made.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    }
    Ok(())
}

fn status() -> Value {
    let offered = json!({
        "cpu": "64", "memory": "512Gi", "pods": "250", "nvidia.com/gpu": (CARDS * 32).to_string(),
        "nvidia.com/gpumem": (CARDS * 80 * 1024).to_string(), "nvidia.com/gpumem-percentage": (CARDS * 100).to_string(),
        "nvidia.com/gpucores": (CARDS * 100).to_string(),
    });
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake"});
    json!({"capacity": offered, "allocatable": offered, "conditions": [ready]})
}

fn report(name: &str) -> Value {
    let card = |number: usize| {
        let links: Vec<Value> = (0..CARDS)
            .filter(|other| *other != number)
            .map(|other| json!({"to": format!("GPU-{name}-{other}"), "class": "NV18"}))
            .collect();
        json!({
            "uuid": format!("GPU-{name}-{number}"), "model": "NVIDIA H100 80GB HBM3", "memoryMi": 80 * 1024,
            "health": "Healthy", "links": links,
        })
    };
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Registered", "message": "fake",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    json!({
        "cards": (0..CARDS).map(card).collect::<Vec<_>>(), "shares": [], "tier": "accounting",
        "scales": {"memory": 100, "cores": 100}, "ledgerRevision": 1, "conditions": [ready],
    })
}
