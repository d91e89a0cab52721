//! Groups of pods that start together: as kube-scheduler schedules them since 1.36, and as the coscheduling plugin does.
//!
//! Two groups come at once to GPUs that can hold one of them. By the scheduler's sums both fit: two pods share the room that
//! is left on three cards.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::node::CARDS;
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::view;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

use crate::webhook::as_planned;

const OWN: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
/// Flags of kube-apiserver and kube-scheduler.
const GATES: &str = "--feature-gates=";
const APIS: &str = "--runtime-config=";
/// More than half of the cards, of which a pod takes more than half each.
const MEMBERS: u32 = CARDS / 2 + 1;
const SHARE: [(&str, &str); 2] = [("gpu", "1"), ("gpumem", "50Gi")];
const GROUPS: [&str; 2] = ["first", "second"];
const ROUNDS: usize = 3;

/// kube-scheduler's own groups, which it has behind feature gates.
pub(crate) async fn of_kube_scheduler(cluster: &mut Cluster) -> anyhow::Result<()> {
    let version = cluster.api.get("/version").await?["gitVersion"].as_str().map(view::minor_version);
    if version.context("the API server has no version")?? < 36 {
        println!("  skipped: Kubernetes 1.36 and newer have groups of pods");
        return Ok(());
    }
    let gates = "GenericWorkload=true,GangScheduling=true";
    cluster.control_plane.api.set_args(&[(GATES, gates), (APIS, "scheduling.k8s.io/v1alpha2=true")]);
    cluster.control_plane.scheduler.set_args(&[(GATES, gates)]);
    restart(cluster).await?;
    cluster.start_webhook().await?;
    cluster.restart_scheduler(true).await?;
    for round in 1..=ROUNDS {
        for name in GROUPS {
            let group = json!({
                "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name},
                "spec": {"schedulingPolicy": {"gang": {"minCount": MEMBERS}}},
            });
            cluster.api.create(OWN, &group).await?;
        }
        one_after_the_other(cluster, round, |pod, group| {
            pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
        })
        .await?;
        for name in GROUPS {
            cluster.api.delete(&format!("{OWN}/{name}")).await?;
        }
    }
    cluster.stop_webhook().await?;
    cluster.control_plane.api.set_args(&[(GATES, ""), (APIS, "")]);
    cluster.control_plane.scheduler.set_args(&[(GATES, "")]);
    restart(cluster).await
}

/// Both groups' pods come in turn. One group runs, and none of the other's pods; once it has ended, the other runs.
async fn one_after_the_other(
    cluster: &mut Cluster,
    round: usize,
    join: impl Fn(&mut Value, &str),
) -> anyhow::Result<()> {
    let pod = |number: u32, group: &str| {
        let mut pod = pods::plain(&PodShape::new(format!("{group}-{number}")).with(App, "main", &SHARE));
        join(&mut pod, group);
        pod
    };
    let objects = (0..MEMBERS).flat_map(|number| GROUPS.map(|group| pod(number, group))).collect();
    cluster.create_objects(objects).await?;
    let members = usize::try_from(MEMBERS)?;
    let first = runs(cluster, members).await?;
    let last = GROUPS.into_iter().find(|group| *group != first).context("another group")?;
    for number in 0..MEMBERS {
        let why = cluster.until_pod(&format!("{last}-{number}"), view::unschedulable).await?;
        if number == 0 {
            println!("  round {round}: {first} runs, {last} waits: {why}");
        }
    }
    let bound = cluster.list().await?.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
    ensure!(bound == members, "{bound} pods are bound");
    cluster.agree().await?;
    as_planned(cluster).await?;
    let begun = Instant::now();
    for number in 0..MEMBERS {
        cluster.api.delete(&format!("{PODS}/{first}-{number}")).await?;
    }
    ensure!(runs(cluster, members).await? == last, "the other group's turn");
    println!("  round {round}: {last} runs {:.1?} after the end of {first}", begun.elapsed());
    cluster.agree().await?;
    cluster.clear().await
}

/// Waits until all pods of a group run, and returns its name.
async fn runs(cluster: &mut Cluster, members: usize) -> anyhow::Result<&'static str> {
    cluster
        .until("a group that runs", PATIENCE, async |this| {
            let pods = this.list().await?;
            let ready = |group: &str| {
                pods.iter().filter(|pod| view::name(pod).starts_with(group) && view::is_ready(pod)).count()
            };
            Ok(GROUPS.into_iter().find(|group| ready(group) == members))
        })
        .await
}

/// Starts API server and scheduler anew, as they are configured.
async fn restart(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.control_plane.api.kill().await?;
    cluster.control_plane.api.start()?;
    cluster.api_ready().await?;
    cluster.restart_scheduler(false).await
}
