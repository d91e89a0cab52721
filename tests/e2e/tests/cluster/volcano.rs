//! Volcano's Jobs and scheduler beside Divvy, as deploy/recipes/volcano has them. `KUBE_BIN_DIR` has them as `vc-scheduler` and
//! `vc-controller-manager`, and the manifests of their release as `volcano-manifests.yaml`; without these the scenario is skipped.

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::node::CARDS;
use divvy_e2e::program::Program;
use divvy_e2e::{pods, view};
use serde_json::{Value, json};

use crate::gates;

const GANG: &str = include_str!("../../../../deploy/recipes/volcano/gang.yaml");

const CONTROLLERS: &str = "vc-controller-manager";
const SCHEDULER: &str = "vc-scheduler";
const MANIFESTS: &str = "volcano-manifests.yaml";
const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";
const GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups";
const QUEUE: &str = "/apis/scheduling.volcano.sh/v1beta1/queues/default";
/// Pods of the recipe.
const MEMBERS: usize = 2;
/// MiB of more than half of a card, which leave less than a member of the recipe's gang requests.
const MORE_THAN_HALF: u32 = 48 << 10;

/// The recipe's gang runs. One that fits the sum of what is free, and no card, is bound and refused by the node, and those that
/// run keep what they have.
pub(crate) async fn starts_gangs_as_the_node_allows(cluster: &mut Cluster) -> anyhow::Result<()> {
    let given = [CONTROLLERS, SCHEDULER, MANIFESTS].map(|name| cluster.given(name));
    let [Some(controllers), Some(scheduler), Some(manifests)] = given else {
        println!("  skipped: KUBE_BIN_DIR has no {SCHEDULER} with {CONTROLLERS} and {MANIFESTS}");
        return Ok(());
    };
    cluster.start_webhook().await?;
    gates::configure(cluster, "gates").await?;
    let kinds = cluster.define_kinds(&manifests).await?;
    let args = || {
        let kubeconfig = cluster.kubectl.kubeconfig().display();
        vec![format!("--kubeconfig={kubeconfig}"), "--leader-elect=false".to_owned()]
    };
    let logs = cluster.files.logs();
    let mut programs =
        [Program::new(CONTROLLERS, controllers, args(), &logs), Program::new(SCHEDULER, scheduler, args(), &logs)];
    programs.iter_mut().try_for_each(Program::start)?;
    let shown = gangs(cluster, &mut programs).await;
    for program in &mut programs {
        program.kill().await?;
    }
    let removed = cluster.remove_kinds(&kinds).await;
    shown.and(removed)?;
    gates::configure(cluster, "extender").await?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

async fn gangs(cluster: &mut Cluster, programs: &mut [Program]) -> anyhow::Result<()> {
    let gang = pods::runnable(GANG)?;
    queue_exists(cluster, programs).await?;
    cluster.api.create(JOBS, &gang).await?;
    cluster.all_running(MEMBERS).await?;
    cluster.agree().await?;
    println!("  {MEMBERS} members of a gang run");
    end(cluster, "gang").await?;
    // The kubelet takes its time to give the cards of a pod that is gone to others.
    cluster.clear().await?;
    whole_gpus(cluster, &gang).await?;
    cluster.clear().await?;

    cluster.api.create(JOBS, &one_on_each_card(&gang)).await?;
    cluster.all_running(usize::try_from(CARDS)?).await?;
    let before = cluster.agree().await?.running;
    cluster.api.create(JOBS, &gang).await?;
    let why = refused(cluster).await?;
    println!("  {CARDS} others run; a pod of the gang was refused: {why}");
    let words = format!("Insufficient GPUs ({CARDS} short of memory, largest free 32Gi)");
    ensure!(why.contains(&words), "{why}");
    end(cluster, "gang").await?;
    let after = cluster.agree().await?.running;
    for (key, before) in &before {
        let now = after.get(key).with_context(|| format!("container {key:?} has ended"))?;
        let is_same = now.pid == before.pid && now.is_given_as(before);
        ensure!(is_same, "container {key:?} had {:?}, now {:?}", before.given, now.given);
    }
    end(cluster, "others").await
}

/// A gang of a whole GPU more than there are waits, and none of its pods is bound.
async fn whole_gpus(cluster: &mut Cluster, gang: &Value) -> anyhow::Result<()> {
    let mut job = gang.clone();
    job["metadata"]["name"] = json!("whole");
    job["spec"]["minAvailable"] = json!(CARDS + 1);
    let task = &mut job["spec"]["tasks"][0];
    task["replicas"] = json!(CARDS + 1);
    let resources = &mut task["template"]["spec"]["containers"][0]["resources"];
    *resources = json!({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 1}});
    cluster.api.create(JOBS, &job).await?;
    let why = cluster
        .until("whole GPUs that wait", PATIENCE, async |this| {
            let groups = this.api.get(GROUPS).await?;
            let condition = view::condition(&groups["items"][0], "Unschedulable").context("no reason yet")?;
            let pods = members(this, "whole").await?.len();
            ensure!(pods == usize::try_from(CARDS + 1)?, "{pods} pods");
            Ok(condition["message"].as_str().map(str::to_owned))
        })
        .await?;
    let bound = members(cluster, "whole").await?.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
    ensure!(bound == 0, "{bound} of the gang are bound");
    println!("  {} whole GPUs wait: {why}", CARDS + 1);
    end(cluster, "whole").await
}

/// Waits until the scheduler has made the queue that Jobs are in.
async fn queue_exists(cluster: &mut Cluster, programs: &mut [Program]) -> anyhow::Result<()> {
    cluster
        .until("queue of Volcano", PATIENCE, async |this| {
            programs.iter_mut().try_for_each(Program::check)?;
            this.api.find(QUEUE).await
        })
        .await
        .map(drop)
}

/// The gang, with a member for each card instead.
fn one_on_each_card(gang: &Value) -> Value {
    let mut job = gang.clone();
    job["metadata"]["name"] = json!("others");
    job["spec"]["minAvailable"] = json!(CARDS);
    let task = &mut job["spec"]["tasks"][0];
    task["replicas"] = json!(CARDS);
    let resources = &mut task["template"]["spec"]["containers"][0]["resources"];
    for amounts in ["requests", "limits"] {
        resources[amounts]["nvidia.com/gpumem"] = json!(MORE_THAN_HALF);
    }
    job
}

/// Waits until the node has refused a pod of the gang, and returns why.
async fn refused(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster
        .until("pod of the gang that is refused", PATIENCE, async |this| {
            let events = this.api.get("/api/v1/namespaces/default/events").await?;
            let mut events = events["items"].as_array().into_iter().flatten();
            let of_gang = |event: &&Value| {
                let pod = event["involvedObject"]["name"].as_str().unwrap_or_default();
                pod.starts_with("gang-") && event["reason"] == "UnexpectedAdmissionError"
            };
            Ok(events.find(of_gang).and_then(|event| event["message"].as_str()).map(str::to_owned))
        })
        .await
}

async fn members(cluster: &mut Cluster, job: &str) -> anyhow::Result<Vec<Value>> {
    let pods = cluster.list().await?.into_iter();
    Ok(pods.filter(|pod| pod["metadata"]["labels"]["volcano.sh/job-name"] == job).collect())
}

/// Deletes a Job, and waits until its pods are gone.
async fn end(cluster: &mut Cluster, job: &str) -> anyhow::Result<()> {
    cluster.api.delete(&format!("{JOBS}/{job}")).await?;
    cluster
        .until(&format!("end of Job {job}"), PATIENCE, async |this| {
            Ok(members(this, job).await?.is_empty().then_some(()))
        })
        .await
}
