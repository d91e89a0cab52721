//! The default way to schedule, beside a kube-scheduler that nobody has configured.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_api::names::GATE;
use divvy_api::names::condition::PLACED;
use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::node::{CARD_MEMORY, CARDS};
use divvy_e2e::pods::{self, DEPLOYMENTS, PODS};
use divvy_e2e::view;
use divvy_testkit::pods::PodShape;
use fake_nvml::Scenario;
use serde_json::{Value, json};

/// GPUs of the node.
const GPUS: usize = 8;
/// Times that the ten come.
const TIMES: usize = 9;
/// Pods of a Deployment for which there are no GPUs.
const WAITING: usize = 4;
/// Pods without GPUs that come one after another.
const OTHERS: usize = 10;

async fn begin(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.change_cards(|scenario| *scenario = Scenario::uniform(8, "NVIDIA H100 80GB HBM3", CARD_MEMORY))?;
    cluster.restart_daemon(&json!({})).await?;
    cluster.amounts_ready().await?;
    cluster.start_webhook().await?;
    configure(cluster, "gates").await
}

/// Has the webhook schedule this way, and waits until it does.
pub(crate) async fn configure(cluster: &mut Cluster, scheduling: &str) -> anyhow::Result<()> {
    cluster.configure_webhook(&json!({"scheduling": scheduling})).await?;
    cluster.until("leader", PATIENCE, async |this| Ok(this.webhook.leader().await)).await?;
    cluster.webhook_called().await
}

async fn end(cluster: &mut Cluster) -> anyhow::Result<()> {
    configure(cluster, "extender").await?;
    cluster.stop_webhook().await?;
    cluster.renew().await
}

fn shape(name: String, request: &[(&str, &str)]) -> Value {
    pods::plain(&PodShape::new(name).with(App, "main", request))
}

/// Ten shapes at once, which fill five of the eight GPUs if they are put together well, come nine times.
pub(crate) async fn ten_shapes_at_once(cluster: &mut Cluster) -> anyhow::Result<()> {
    begin(cluster).await?;
    shapes(cluster).await?;
    end(cluster).await
}

async fn shapes(cluster: &mut Cluster) -> anyhow::Result<()> {
    for time in 0..TIMES {
        let pods = (0..10).map(|number| {
            let (memory, cores) = (format!("{}Gi", 6 + 3 * number), (5 + 3 * number).to_string());
            shape(format!("p-{time}-{number}"), &[("gpu", "1"), ("gpumem", &memory), ("gpucores", &cores)])
        });
        cluster.create_objects(pods.collect()).await?;
        cluster.all_running(10).await.with_context(|| format!("time {time}"))?;
        cluster.agree().await?;
        cluster.clear().await?;
    }
    Ok(())
}

/// What comes to a default installation: the ten shapes, and a Deployment of more whole GPUs than there are, of which as many
/// run as there are GPUs, and the others wait with a reason.
pub(crate) async fn in_a_default_installation(cluster: &mut Cluster) -> anyhow::Result<()> {
    shapes(cluster).await?;
    let cards = usize::try_from(CARDS)?;
    cluster.api.create(DEPLOYMENTS, &pods::deployment("whole", cards + WAITING, &[("gpu", "1")])).await?;
    let waiting = cluster
        .until("pods that run, and others that wait", PATIENCE, async |this| {
            let pods = this.list().await?;
            let running = pods.iter().filter(|pod| view::is_ready(pod)).count();
            let waiting: Vec<String> = pods.iter().filter_map(view::unplaced).collect();
            ensure!(running == cards && waiting.len() == WAITING, "{running} run, waiting: {waiting:?}");
            Ok(Some(waiting))
        })
        .await?;
    let failed = cluster.list().await?.iter().filter(|pod| pod["status"]["phase"] == "Failed").count();
    println!("  of {} whole GPUs {cards} run, {failed} failed, {WAITING} wait: {}", cards + WAITING, waiting[0]);
    ensure!(failed == 0, "{failed} failed");
    cluster.kubectl.run(&["delete", "deployment", "whole", "--cascade=foreground"]).await?;
    cluster.clear().await
}

/// While the leader is stopped pods without GPUs start as ever, and those with GPUs once the other replica leads.
pub(crate) async fn leader_is_frozen(cluster: &mut Cluster) -> anyhow::Result<()> {
    begin(cluster).await?;
    let before = others(cluster, "before").await?;
    let leader = cluster.webhook.leader().await.context("no leader")?;
    cluster.webhook.replicas[leader].program.signal("STOP")?;
    let during = others(cluster, "during").await;
    let gpu = shape("gpu".to_owned(), &[("gpu", "1"), ("gpumem", "8Gi")]);
    let begun = Instant::now();
    // A review may go to the replica that is stopped, until the Service has the other one alone.
    let created = cluster.until("creation", 2 * PATIENCE, async |this| {
        Ok(this.create_objects(vec![gpu.clone()]).await.is_ok().then_some(()))
    });
    let started = match created.await {
        Ok(()) => cluster.all_running(2 * OTHERS + 1).await,
        Err(error) => Err(error),
    };
    let took = begun.elapsed();
    cluster.webhook.replicas[leader].program.signal("CONT")?;
    let during = during?;
    started?;
    println!(
        "  {OTHERS} pods without GPUs: {before:.1?}, with the leader stopped {during:.1?}; one with a GPU {took:.1?}"
    );
    cluster.clear().await?;
    end(cluster).await
}

/// Creates pods without GPUs one after another, and returns how long they take until they all run.
async fn others(cluster: &mut Cluster, name: &str) -> anyhow::Result<Duration> {
    let (begun, before) = (Instant::now(), cluster.list().await?.len());
    for number in 0..OTHERS {
        cluster.create_objects(vec![shape(format!("{name}-{number}"), &[])]).await?;
    }
    cluster.all_running(before + OTHERS).await?;
    Ok(begun.elapsed())
}

/// Pods that wait with the gate lose it when the mode changes, and kube-scheduler takes them.
pub(crate) async fn mode_changes(cluster: &mut Cluster) -> anyhow::Result<()> {
    begin(cluster).await?;
    // No GPU has room for a second of these, though the sums of all GPUs have.
    let pods = (0..9).map(|number| shape(format!("p-{number}"), &[("gpu", "1"), ("gpumem", "60Gi")]));
    cluster.create_objects(pods.collect()).await?;
    let gated = |pods: &[Value]| {
        let has_gate = |pod: &&Value| {
            let gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
            gates.into_iter().any(|gate| gate["name"] == GATE)
        };
        pods.iter().filter(has_gate).map(|pod| view::name(pod).to_owned()).collect::<Vec<_>>()
    };
    let told = async |this: &mut Cluster| {
        let pods = this.list().await?;
        let running = pods.iter().filter(|pod| view::is_ready(pod)).count();
        ensure!(running == 8 && gated(&pods).len() == 1, "{running} run, with gates: {:?}", gated(&pods));
        let waiting = pods.iter().find(|pod| !view::is_ready(pod)).context("one waits")?;
        Ok(view::unplaced(waiting))
    };
    let message = cluster.until("reason of the pod that waits", PATIENCE, told).await?;
    println!("  {message}");
    configure(cluster, "node").await?;
    cluster
        .until("gates that are gone", PATIENCE, async |this| Ok(gated(&this.list().await?).is_empty().then_some(())))
        .await?;
    cluster.clear().await?;
    end(cluster).await
}

/// Pods that kube-scheduler places nowhere, for a reason that the planner doesn't know, and one that is deleted and stays, keep no
/// GPU from others.
pub(crate) async fn turned_down_by_the_scheduler(cluster: &mut Cluster) -> anyhow::Result<()> {
    begin(cluster).await?;
    let nobody = json!({"matchLabels": {"app": "nobody"}});
    let beside = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": nobody}]);
    let lonely = (0..GPUS).map(|number| {
        let mut pod = shape(format!("lonely-{number}"), &[("gpu", "1")]);
        pod["spec"]["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": beside}});
        pod
    });
    cluster.create_objects(lonely.collect()).await?;
    let told = |pod: &Value| {
        let placed = view::condition(pod, PLACED).filter(|placed| placed["reason"] == "NotScheduled")?;
        placed["message"].as_str().map(str::to_owned)
    };
    println!("  {}", cluster.until_pod("lonely-0", told).await?);
    let mut kept = shape("kept".to_owned(), &[("gpu", "1")]);
    kept["metadata"]["finalizers"] = json!(["example.com/kept"]);
    kept["spec"]["schedulingGates"] = json!([{"name": "example.com/hold"}]);
    cluster.create_objects(vec![kept]).await?;
    cluster.api.delete(&format!("{PODS}/kept")).await?;
    let opened = json!({"spec": {"schedulingGates": [{"name": GATE}]}});
    cluster.api.patch(&format!("{PODS}/kept"), Part::Object, &opened).await?;
    let begun = Instant::now();
    let others = (0..GPUS).map(|number| shape(format!("other-{number}"), &[("gpu", "1")]));
    cluster.create_objects(others.collect()).await?;
    for number in 0..GPUS {
        cluster.until_pod(&format!("other-{number}"), |pod| view::is_ready(pod).then_some(())).await?;
    }
    println!("  {GPUS} other pods have all {GPUS} GPUs after {:.1?}", begun.elapsed());
    let finalizers = json!({"metadata": {"finalizers": null}});
    cluster.api.patch(&format!("{PODS}/kept"), Part::Object, &finalizers).await?;
    cluster.clear().await?;
    end(cluster).await
}
