//! Volcano's Jobs and scheduler beside Divvy, as deploy/recipes/volcano has them. `KUBE_BIN_DIR` has them as `vc-scheduler` and
//! `vc-controller-manager`, and the manifests of their release as `volcano-manifests.yaml`; without these the scenario is skipped.

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::node::{CARDS, NODE};
use divvy_e2e::program::Program;
use divvy_e2e::{pods, view};
use serde_json::{Value, json};

const GANG: &str = include_str!("../../../../deploy/recipes/volcano/gang.yaml");

const CONTROLLERS: &str = "vc-controller-manager";
const SCHEDULER: &str = "vc-scheduler";
const MANIFESTS: &str = "volcano-manifests.yaml";
const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";
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

    cluster.api.create(JOBS, &one_on_each_card(&gang)).await?;
    cluster.all_running(usize::try_from(CARDS)?).await?;
    let before = cluster.agree().await?.running;
    cluster.api.create(JOBS, &gang).await?;
    let (refused, retries) = refused(cluster).await?;
    let why = view::failure(&refused);
    println!("  {CARDS} others run; the gang failed after {retries} retries: {why}");
    ensure!(refused["spec"]["nodeName"] == NODE, "the pod wasn't bound");
    let words = format!("Insufficient GPUs ({CARDS} short of memory, largest free 32Gi)");
    ensure!(why.starts_with("UnexpectedAdmissionError") && why.contains(&words), "{why}");
    end(cluster, "gang").await?;
    let after = cluster.agree().await?.running;
    for (key, before) in &before {
        let now = after.get(key).with_context(|| format!("container {key:?} has ended"))?;
        let is_same = now.pid == before.pid && now.is_given_as(before);
        ensure!(is_same, "container {key:?} had {:?}, now {:?}", before.given, now.given);
    }
    end(cluster, "others").await
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

/// Waits until the gang has failed for good, and returns the pod that the node refused, and how often the gang was started again.
async fn refused(cluster: &mut Cluster) -> anyhow::Result<(Value, Value)> {
    cluster
        .until("gang that has failed", PATIENCE, async |this| {
            let status = this.api.get(&format!("{JOBS}/gang")).await?["status"].take();
            ensure!(status["state"]["phase"] == "Failed", "it is {status}");
            let refused = members(this, "gang").await?.into_iter().find(|pod| view::phase(pod) == "Failed");
            Ok(refused.map(|pod| (pod, status["retryCount"].clone())))
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
