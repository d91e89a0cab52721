//! Deployments for which the node has no room, where nothing but kube-scheduler's sums keeps their pods away.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::node::CARD_MEMORY;
use divvy_e2e::pods::{self, DEPLOYMENTS};
use divvy_e2e::view;
use divvy_testkit::pods::PodShape;
use fake_nvml::Scenario;
use serde_json::{Value, json};

/// GPUs of the node, 80 GiB each.
const GPUS: u32 = 8;
/// A pod in place of a refused one comes within 50 ms, where nothing keeps it away.
const OBSERVED: Duration = Duration::from_secs(20);
/// Pods of a Deployment that the node may refuse: those that the sums let through at once.
const MOST_REFUSED: usize = 3;

/// A Deployment beside other pods.
struct Case {
    what: &'static str,
    /// Pods that hold parts of GPUs before the Deployment comes.
    first: usize,
    first_request: &'static [(&'static str, &'static str)],
    replicas: usize,
    request: &'static [(&'static str, &'static str)],
    /// Replicas that there is room for at least.
    fit: usize,
    /// Pods that fit beside them.
    others: &'static [&'static [(&'static str, &'static str)]],
    /// Whether the others come with the Deployment, or afterwards.
    together: bool,
}

const NOTHING: &[(&str, &str)] = &[];
const FIFTH: &[(&str, &str)] = &[("gpu", "1"), ("gpumem-percentage", "20")];
const CASES: [Case; 8] = [
    Case {
        what: "whole GPUs",
        first: 1,
        first_request: &[("gpu", "1"), ("gpumem-percentage", "10")],
        replicas: 20,
        request: &[("gpu", "1")],
        fit: 7,
        others: &[
            &[("gpu", "1"), ("gpumem", "20Gi")],
            &[("gpu", "1"), ("gpumem-percentage", "20")],
            &[("gpu", "1"), ("gpucores", "30")],
        ],
        together: false,
    },
    Case {
        what: "two whole GPUs each",
        first: 3,
        first_request: &[("gpu", "1"), ("gpumem-percentage", "60")],
        replicas: 6,
        request: &[("gpu", "2")],
        fit: 2,
        others: &[&[("gpu", "1"), ("gpumem-percentage", "40")], &[("gpu", "1")], &[("gpu", "2"), ("gpumem", "20Gi")]],
        together: false,
    },
    Case {
        what: "GPUs that are whole by 100 % and 100 cores",
        first: 1,
        first_request: &[("gpu", "1"), ("gpumem-percentage", "10")],
        replicas: 20,
        request: &[("gpu", "1"), ("gpumem-percentage", "100"), ("gpucores", "100")],
        fit: 7,
        others: &[&[("gpu", "1"), ("gpumem-percentage", "90")]],
        together: false,
    },
    Case {
        what: "memory",
        first: 0,
        first_request: NOTHING,
        replicas: 12,
        request: &[("gpu", "1"), ("gpumem", "60Gi")],
        fit: 8,
        others: &[&[("gpu", "1"), ("gpumem", "20Gi")], &[("gpu", "1"), ("gpumem-percentage", "25")]],
        together: false,
    },
    Case {
        what: "memory in percent",
        first: 0,
        first_request: NOTHING,
        replicas: 12,
        request: &[("gpu", "1"), ("gpumem-percentage", "75")],
        fit: 8,
        others: &[&[("gpu", "1"), ("gpumem", "20Gi")], &[("gpu", "1"), ("gpumem-percentage", "25")]],
        together: false,
    },
    Case {
        what: "compute",
        first: 0,
        first_request: NOTHING,
        replicas: 12,
        request: &[("gpu", "1"), ("gpumem", "1Gi"), ("gpucores", "75")],
        fit: 8,
        others: &[&[("gpu", "1"), ("gpumem", "60Gi")], &[("gpu", "1"), ("gpucores", "25")]],
        together: false,
    },
    Case {
        what: "parts of two GPUs each",
        first: 0,
        first_request: NOTHING,
        replicas: 8,
        request: &[("gpu", "2"), ("gpumem", "50Gi")],
        fit: 4,
        others: &[&[("gpu", "1"), ("gpumem", "30Gi")], &[("gpu", "2"), ("gpumem", "20Gi")]],
        together: false,
    },
    Case {
        what: "memory, with other pods that the kubelet still has to admit when the first one is refused",
        first: 0,
        first_request: NOTHING,
        replicas: 9,
        request: &[("gpu", "1"), ("gpumem-percentage", "60")],
        // Of the others five may come to one GPU.
        fit: 5,
        others: &[FIFTH; 12],
        together: true,
    },
];

/// Replicas that don't fit wait, few are refused, and whatever fits still runs.
pub(crate) async fn are_few(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.change_cards(|scenario| *scenario = Scenario::uniform(GPUS, "NVIDIA H100 80GB HBM3", CARD_MEMORY))?;
    cluster.restart_daemon(&json!({})).await?;
    cluster.amounts_ready().await?;
    cluster.start_webhook().await?;
    cluster.configure_webhook(&json!({"scheduling": "node"})).await?;
    cluster.webhook_called().await?;
    let mut storms = Vec::new();
    for case in &CASES {
        let refused = try_out(cluster, case).await.with_context(|| case.what)?;
        if refused > MOST_REFUSED {
            storms.push(format!("{}: {refused} refused", case.what));
        }
    }
    ensure!(storms.is_empty(), "{}", storms.join("; "));
    cluster.configure_webhook(&json!({"scheduling": "extender"})).await?;
    cluster.stop_webhook().await?;
    // Without the webhook nothing but slots is counted for whole GPUs.
    let refused = try_out(cluster, &Case { first: 0, fit: 8, others: &[], what: "alone", ..CASES[0] }).await?;
    println!("  the daemon alone, all GPUs whole: {refused} refused");
    ensure!(refused <= 20, "pods are refused on and on: {refused}");
    cluster.renew().await
}

/// With gates replicas that don't fit wait, none is refused, and whatever fits runs.
pub(crate) async fn are_none_with_gates(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.change_cards(|scenario| *scenario = Scenario::uniform(GPUS, "NVIDIA H100 80GB HBM3", CARD_MEMORY))?;
    cluster.restart_daemon(&json!({})).await?;
    cluster.amounts_ready().await?;
    cluster.start_webhook().await?;
    cluster.configure_webhook(&json!({"scheduling": "gates"})).await?;
    let mut refusals = Vec::new();
    for case in &CASES {
        let refused = try_out(cluster, case).await.with_context(|| case.what)?;
        refusals.extend((refused > 0).then(|| format!("{}: {refused} refused", case.what)));
    }
    ensure!(refusals.is_empty(), "{}", refusals.join("; "));
    cluster.configure_webhook(&json!({"scheduling": "extender"})).await?;
    cluster.stop_webhook().await?;
    cluster.renew().await
}

async fn try_out(cluster: &mut Cluster, case: &Case) -> anyhow::Result<usize> {
    let Case { what, first, first_request, replicas, request, fit, others, together } = *case;
    let shape = |name: String, request| pods::plain(&PodShape::new(name).with(App, "main", request));
    cluster.create_objects((0..first).map(|at| shape(format!("first-{at}"), first_request)).collect()).await?;
    cluster.all_running(first).await?;
    let others = others.iter().enumerate().map(|(at, request)| shape(format!("other-{at}"), request));
    let others: Vec<Value> = others.collect();
    cluster.api.create(DEPLOYMENTS, &pods::deployment("many", replicas, request)).await?;
    if together {
        cluster.create_objects(others.clone()).await?;
    }
    let is_replica = |pod: &&Value| pod["metadata"]["labels"]["app"] == "many";
    let run = |pods: &[Value]| pods.iter().filter(is_replica).filter(|pod| view::is_ready(pod)).count();
    cluster
        .until(&format!("{fit} replicas that run"), OBSERVED, async |this| {
            Ok((run(&this.list().await?) >= fit).then_some(()))
        })
        .await?;
    let started = Instant::now();
    cluster.until("time", 2 * OBSERVED, async |_| Ok((started.elapsed() >= OBSERVED).then_some(()))).await?;
    if !together {
        cluster.create_objects(others).await?;
    }
    let is_other = |pod: &&Value| view::name(pod).starts_with("other-");
    cluster
        .until("pods that fit beside the Deployment", Duration::from_secs(30), async |this| {
            let pods = this.list().await?;
            let failed: Vec<_> =
                pods.iter().filter(is_other).filter(|pod| view::is_over(pod)).map(view::failure).collect();
            ensure!(failed.is_empty(), "{failed:?}");
            let waiting: Vec<_> = pods.iter().filter(is_other).filter(|pod| !view::is_ready(pod)).collect();
            ensure!(
                waiting.is_empty(),
                "{:?}",
                waiting.iter().map(|pod| (view::name(pod), view::unschedulable(pod))).collect::<Vec<_>>()
            );
            Ok(Some(()))
        })
        .await?;
    let pods = cluster.list().await?;
    let failures = view::failures(&pods);
    let refused = failures.values().map(|count| *count as usize).sum();
    let waiting = pods.iter().filter(is_replica).find_map(view::unschedulable);
    println!("  {what}: {} of {replicas} run, {refused} refused; the others wait: {waiting:?}", run(&pods));
    failures.iter().take(2).for_each(|(failure, count)| println!("    {count} × {failure}"));
    ensure!(run(&pods) >= fit, "{} run", run(&pods));
    cluster.agree().await?;
    cluster.kubectl.run(&["delete", "deployment", "many", "--cascade=foreground"]).await?;
    cluster.clear().await?;
    Ok(refused)
}
