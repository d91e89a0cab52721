//! The scenarios: a full cluster measured from all sides, and what the API server's part of a pod grows by.

mod bindings;
mod interruptions;
mod latencies;
mod overload;
mod reports;

use std::time::Instant;

use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::runner::{Installed, Scenario};
use serde_json::json;

use crate::figures::Reading;
use crate::fleet::{self, Fleet, number};
use crate::rounds::{self, CAUSES, WAYS, count};

/// Pods of one run.
const RUN: usize = 1000;
/// The node that is left empty at first, for a pod that needs all of it.
const EMPTY: &str = "/api/v1/nodes/fake-0";

/// Scenarios of this benchmark.
pub(crate) const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "scale",
        only_when_named: false,
        installed: Installed::AsProcesses,
        run: |cluster| Box::pin(full(cluster)),
    },
    Scenario {
        name: "ways",
        only_when_named: true,
        installed: Installed::AsProcesses,
        run: |cluster| Box::pin(ways(cluster)),
    },
    Scenario {
        name: "latencies",
        only_when_named: true,
        installed: Installed::AsProcesses,
        run: |cluster| Box::pin(latencies(cluster)),
    },
    Scenario {
        name: "overload",
        only_when_named: true,
        installed: Installed::AsProcesses,
        run: |cluster| Box::pin(overload(cluster)),
    },
    Scenario {
        name: "causes",
        only_when_named: true,
        installed: Installed::AsProcesses,
        run: |cluster| Box::pin(causes(cluster)),
    },
    Scenario {
        name: "bindings",
        only_when_named: true,
        installed: Installed::AsProcesses,
        run: |cluster| Box::pin(bindings::compare(cluster)),
    },
    Scenario {
        name: "reports",
        only_when_named: true,
        installed: Installed::AsProcesses,
        run: |cluster| Box::pin(reports::compare(cluster)),
    },
];

/// 5 000 nodes, 40 000 pods: the fill, runs with the extender and without, kills, and releases.
async fn full(cluster: &mut Cluster) -> anyhow::Result<()> {
    let (nodes, pods) = (number("DIVVY_E2E_NODES", 5000)?, number("DIVVY_E2E_PODS", 40_000)?);
    let rounds = number("DIVVY_E2E_ROUNDS", 10)?;
    let mut fleet = start(cluster, nodes).await?;
    cluster.api.patch(EMPTY, Part::Object, &json!({"spec": {"unschedulable": true}})).await?;
    cluster.restart_scheduler(true).await?;
    rounds::probe(cluster, &mut fleet).await?;
    let first = fleet.counted().await?;
    let (before, begun) = (rounds::quiet(cluster, &fleet).await?, Instant::now());
    fleet::create(cluster, (0..pods).map(|number| fleet::pod("fill", number))).await?;
    println!("  {pods} pods created after {:.1?}", begun.elapsed());
    fleet.until(cluster, "pods that are all annotated", |counted| counted.annotated >= first.annotated + pods).await?;
    println!("  placed by the real scheduler, running and annotated after {:.1?}", begun.elapsed());
    rounds::quiet(cluster, &fleet).await?.since(&before).print(count(pods));
    say_memory(cluster, &fleet);
    rounds::compare(cluster, &mut fleet, &WAYS, rounds, RUN.min(pods)).await?;
    cluster.restart_scheduler(true).await?;
    interruptions::leaders(cluster, &mut fleet, rounds).await?;
    interruptions::releases(cluster, &mut fleet, rounds).await?;
    say_memory(cluster, &fleet);
    println!("  {:?}", fleet.counted().await?);
    Ok(())
}

/// The same pods with each way to schedule, on an empty cluster.
async fn ways(cluster: &mut Cluster) -> anyhow::Result<()> {
    let mut fleet = start(cluster, number("DIVVY_E2E_NODES", 1000)?).await?;
    let rounds = number("DIVVY_E2E_ROUNDS", 10)?;
    rounds::compare(cluster, &mut fleet, &WAYS, rounds, number("DIVVY_E2E_PODS", RUN)?).await
}

/// Pods one after another with each way to schedule, on an empty cluster.
async fn latencies(cluster: &mut Cluster) -> anyhow::Result<()> {
    let mut fleet = start(cluster, number("DIVVY_E2E_NODES", 1000)?).await?;
    latencies::compare(cluster, &mut fleet, number("DIVVY_E2E_ROUNDS", 3)?).await
}

/// More pods than there are GPUs for.
async fn overload(cluster: &mut Cluster) -> anyhow::Result<()> {
    let nodes = number("DIVVY_E2E_NODES", 100)?;
    let mut fleet = start(cluster, nodes).await?;
    overload::compare(cluster, &mut fleet, nodes, number("DIVVY_E2E_ROUNDS", 3)?).await
}

/// The same pods with one thing changed at a time, on an empty cluster.
async fn causes(cluster: &mut Cluster) -> anyhow::Result<()> {
    let mut fleet = start(cluster, number("DIVVY_E2E_NODES", 1000)?).await?;
    let rounds = number("DIVVY_E2E_ROUNDS", 10)?;
    rounds::compare(cluster, &mut fleet, &CAUSES, rounds, number("DIVVY_E2E_PODS", RUN)?).await
}

async fn start(cluster: &mut Cluster, nodes: usize) -> anyhow::Result<Fleet> {
    cluster.start_webhook().await?;
    let begun = Instant::now();
    let fleet = Fleet::start(cluster, nodes).await?;
    println!("  {nodes} nodes, all reported after {:.1?}", begun.elapsed());
    let idle = Reading::now(cluster, &fleet).await?;
    let begun = Instant::now();
    let idle = rounds::quiet(cluster, &fleet).await?.since(&idle);
    println!("  idle, seconds of processors in {:.1?}: {:.2?}", begun.elapsed(), idle.spent);
    say_memory(cluster, &fleet);
    cluster.until("leader", PATIENCE, async |this| Ok(this.webhook.leader().await)).await?;
    Ok(fleet)
}

fn say_memory(cluster: &Cluster, fleet: &Fleet) {
    let plane = &cluster.control_plane;
    let own = [("kube-apiserver", &plane.api), ("etcd", &plane.etcd), ("kube-scheduler", &plane.scheduler)];
    let replicas = cluster.webhook.replicas.iter().map(|replica| ("webhook", &replica.program));
    let players = fleet.players().map(|program| ("daemons", program));
    let all: Vec<String> = own
        .into_iter()
        .chain(replicas)
        .chain(players)
        .filter_map(|(name, program)| program.memory().map(|[now, most]| format!("{name} {now} / {most}")))
        .collect();
    println!("  resident MiB, now / at most: {}", all.join(", "));
}
