//! Kills and handovers of the leader, and shares that are released for a pod that waits.

use std::time::Instant;

use divvy_api::ContainerKind::App;
use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::view;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

use super::EMPTY;
use crate::figures::spread;
use crate::fleet::{self, Fleet};
use crate::rounds;

/// Ends the leader by SIGKILL and by SIGTERM in turns; prints how long until the other leads, until a pod that is created at
/// that moment is started, and until the replica is ready again.
pub(crate) async fn leaders(cluster: &mut Cluster, fleet: &mut Fleet, rounds: usize) -> anyhow::Result<()> {
    for signal in ["KILL", "TERM"] {
        let (mut leads, mut starts, mut ready, mut memory) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let leader = cluster.until("leader", PATIENCE, async |this| Ok(this.webhook.leader().await)).await?;
            let first = fleet.counted().await?;
            let begun = Instant::now();
            let program = &mut cluster.webhook.replicas[leader].program;
            let retiring = if signal == "TERM" { Some(program.terminate()?) } else { None };
            if retiring.is_none() {
                program.kill().await?;
            }
            let name = format!("after-{signal}").to_lowercase();
            fleet::create(cluster, [fleet::pod(&name, round)].into_iter()).await?;
            cluster
                .until("the other as leader", PATIENCE, async |this| {
                    Ok(this.webhook.leader().await.filter(|now| *now != leader))
                })
                .await?;
            leads.push(begun.elapsed().as_secs_f64());
            fleet.until(cluster, "pod that runs", |counted| counted.running > first.running).await?;
            starts.push(begun.elapsed().as_secs_f64());
            if let Some(mut retiring) = retiring {
                retiring.wait().await?;
            }
            cluster.webhook.replicas[leader].program.start()?;
            let begun = Instant::now();
            cluster.webhook_ready().await?;
            ready.push(begun.elapsed().as_secs_f64());
            memory.extend(cluster.webhook.replicas[leader].program.memory().map(|[now, most]| format!("{now}/{most}")));
        }
        println!("  SIG{signal} to the leader, {rounds} times, seconds until the other leads: {}", spread(&leads, 1));
        println!("    until a pod created at that moment is Running: {}", spread(&starts, 1));
        println!("    from the start of a replica until it is ready: {}", spread(&ready, 1));
        println!("    resident MiB when ready, now/at most: {}", memory.join(" "));
    }
    Ok(())
}

/// A pod with all GPUs of a node is deleted, and another one waits for them.
pub(crate) async fn releases(cluster: &mut Cluster, fleet: &mut Fleet, rounds: usize) -> anyhow::Result<()> {
    let empty = json!({"metadata": {"labels": {"lane": "release"}}, "spec": {"unschedulable": null}});
    cluster.api.patch(EMPTY, Part::Object, &empty).await?;
    create(cluster, 0).await?;
    until_pod(cluster, "whole-0", running).await?;
    let (mut bound, mut started) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let next = format!("whole-{}", round + 1);
        create(cluster, round + 1).await?;
        until_pod(cluster, &next, view::unschedulable).await?;
        rounds::quiet(cluster, fleet).await?;
        let begun = Instant::now();
        cluster.api.delete(&format!("{PODS}/whole-{round}")).await?;
        until_pod(cluster, &next, |pod| pod["spec"]["nodeName"].as_str().map(drop)).await?;
        bound.push(begun.elapsed().as_secs_f64());
        until_pod(cluster, &next, running).await?;
        started.push(begun.elapsed().as_secs_f64());
    }
    println!("  deletion of a pod, {rounds} times, seconds until the pod that waits is bound: {}", spread(&bound, 1));
    println!("    Running: {}", spread(&started, 1));
    Ok(())
}

async fn create(cluster: &Cluster, number: usize) -> anyhow::Result<()> {
    let shape = PodShape::new(format!("whole-{number}")).with(App, "main", &[("gpu", "8")]);
    let mut pod = pods::object(shape)?;
    pod["spec"]["nodeSelector"] = json!({"lane": "release"});
    cluster.api.create(PODS, &pod).await.map(drop)
}

/// Waits for this pod alone: a list of 40 000 takes the API server and this program seconds, which would be measured too.
async fn until_pod<T>(cluster: &mut Cluster, name: &str, found: impl Fn(&Value) -> Option<T>) -> anyhow::Result<T> {
    let path = format!("{PODS}/{name}");
    cluster.until(&path, PATIENCE, async |this| Ok(found(&this.api.get(&path).await?))).await
}

fn running(pod: &Value) -> Option<()> {
    (pod["status"]["phase"] == "Running").then_some(())
}
