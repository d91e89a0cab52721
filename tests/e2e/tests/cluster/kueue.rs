//! Kueue beside Divvy, as deploy/recipes/kueue has it. `KUBE_BIN_DIR` has it as `kueue-manager`, and the manifests of its release
//! as `kueue-manifests.yaml`; without these the scenario is skipped.

use std::path::Path;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use divvy_api::names::GATE;
use divvy_api::names::annotation::PLANNED;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::files::free_address;
use divvy_e2e::program::Program;
use divvy_e2e::{pods, view};
use serde_json::{Value, json};

use crate::gates;

const QUEUES: &str = include_str!("../../../../deploy/recipes/kueue/queues.yaml");
const JOB: &str = include_str!("../../../../deploy/recipes/kueue/job.yaml");
const POD: &str = include_str!("../../../../deploy/recipes/kueue/pod.yaml");

const PROGRAM: &str = "kueue-manager";
const MANIFESTS: &str = "kueue-manifests.yaml";
const SECRET: &str = "/api/v1/namespaces/kueue-system/secrets/kueue-webhook-server-cert";
const SERVICE: &str = "/api/v1/namespaces/kueue-system/services/kueue-webhook-service";
const NAMESPACE: &str = "/api/v1/namespaces/research";
const QUEUED: &str = "/api/v1/namespaces/research/pods";
const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads";
/// What one of the recipe's requests uses of the quota: two GPUs with 8 GiB and 30 percent of each.
const USAGE: [(&str, &str); 4] =
    [("cpu", "100m"), ("nvidia.com/gpu", "2"), ("nvidia.com/gpumem", "16384"), ("nvidia.com/gpucores", "60")];

/// A Job and a pod of the same request use the same of a quota, which admits no more than there is.
pub(crate) async fn counts_jobs_and_pods_alike(cluster: &mut Cluster) -> anyhow::Result<()> {
    let [program, manifests] = [PROGRAM, MANIFESTS].map(|name| cluster.given(name));
    let Some((program, manifests)) = program.zip(manifests) else {
        println!("  skipped: KUBE_BIN_DIR has no {PROGRAM} with {MANIFESTS}");
        return Ok(());
    };
    cluster.start_webhook().await?;
    gates::configure(cluster, "gates").await?;
    let installed = installed(&manifests)?;
    let file = cluster.files.write(MANIFESTS, &installed)?.display().to_string();
    cluster.kubectl.run(&["apply", "--server-side", "-f", &file]).await?;
    let mut kueue = start(cluster, &program).await?;
    let counted = counted(cluster).await;
    remove(cluster).await?;
    kueue.kill().await?;
    cluster.kubectl.run(&["delete", "--wait=false", "-f", &file]).await?;
    counted?;
    gates::configure(cluster, "extender").await?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

/// The release's manifests without what would run in pods.
fn installed(manifests: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(manifests).with_context(|| format!("reading {}", manifests.display()))?;
    let of_pods = |object: &&str| ["kind: Deployment", "kind: APIService"].iter().any(|kind| object.contains(kind));
    Ok(text.split("\n---\n").filter(|object| !of_pods(object)).collect::<Vec<_>>().join("\n---\n"))
}

/// Starts it as a process, serves its webhooks at their Service's ClusterIP, and gives it the certificate that it makes.
async fn start(cluster: &mut Cluster, program: &Path) -> anyhow::Result<Program> {
    let [webhooks, health] = [free_address()?, free_address()?];
    let certificates = cluster.files.directory("kueue-certificates")?;
    let config = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhooks.port(), "certDir": certificates},
        "leaderElection": {"leaderElect": false},
        "integrations": {"frameworks": ["batch/job", "pod"]},
    });
    let config = cluster.files.write("kueue.yaml", config.to_string())?.display().to_string();
    // Its own aggregated API is left out.
    let args = vec![format!("--config={config}"), "--feature-gates=VisibilityOnDemand=false".to_owned()];
    let kubeconfig = cluster.kubectl.kubeconfig().display().to_string();
    let mut kueue =
        Program::new(PROGRAM, program.to_owned(), args, &cluster.files.logs()).env("KUBECONFIG", kubeconfig);
    kueue.start()?;
    cluster.serve_at(SERVICE, webhooks).await?;
    let secret = cluster
        .until("certificate of Kueue", PATIENCE, async |this| {
            Ok(Some(this.api.get(SECRET).await?).filter(|secret| secret["data"]["tls.crt"].is_string()))
        })
        .await?;
    for (name, data) in secret["data"].as_object().into_iter().flatten() {
        let data = BASE64_STANDARD.decode(data.as_str().context("data of a Secret is text")?)?;
        std::fs::write(certificates.join(name), data)?;
    }
    Ok(kueue)
}

async fn counted(cluster: &mut Cluster) -> anyhow::Result<()> {
    let queues = cluster.files.write("queues.yaml", QUEUES)?.display().to_string();
    cluster
        .until("queues", PATIENCE, async |this| {
            this.kubectl.run(&["apply", "-f", &queues]).await?;
            this.api.find(&format!("{NAMESPACE}/serviceaccounts/default")).await
        })
        .await?;
    // Two flavours, each of which has room for two.
    for number in 0..5 {
        let (path, mut object) = if number % 2 == 0 {
            ("/apis/batch/v1/namespaces/research/jobs", pods::runnable(JOB)?)
        } else {
            (QUEUED, pods::runnable(POD)?)
        };
        object["metadata"]["name"] = json!(format!("queued-{number}"));
        let created = cluster.api.create(path, &object).await?;
        if path == QUEUED {
            let gates = created["spec"]["schedulingGates"].as_array().into_iter().flatten();
            let gates: Vec<_> = gates.filter_map(|gate| gate["name"].as_str()).collect();
            println!("  pod {number} has the gates {gates:?}");
            ensure!([GATE, "kueue.x-k8s.io/admission"].iter().all(|gate| gates.contains(gate)), "a gate is missing");
        }
    }
    let usages = cluster
        .until("four workloads that are admitted", PATIENCE, async |this| {
            let workloads = this.api.get(WORKLOADS).await?["items"].take();
            let usage =
                |workload: &Value| workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"].clone();
            let all: Vec<Value> = workloads.as_array().into_iter().flatten().map(usage).collect();
            let admitted = all.iter().filter(|usage| usage.is_object()).count();
            ensure!(admitted <= 4, "{admitted} workloads are admitted");
            Ok((all.len() == 5 && admitted == 4).then_some(all))
        })
        .await?;
    let wanted: Value = USAGE.into_iter().map(|(name, amount)| (name.to_owned(), json!(amount))).collect();
    for usage in usages.iter().filter(|usage| usage.is_object()) {
        ensure!(*usage == wanted, "a request uses {usage} of the quota instead of {wanted}");
    }
    println!("  Jobs and pods use {wanted} each; the fifth waits");
    run_as_planned(cluster).await
}

/// Waits until the two that are admitted for the node's model run where the leader has planned them.
async fn run_as_planned(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster
        .until("two pods that run as planned", PATIENCE, async |this| {
            let pods = this.api.get(QUEUED).await?["items"].take();
            let runs = |pod: &&Value| view::is_ready(pod) && pod["metadata"]["annotations"][PLANNED].is_string();
            let run = pods.as_array().into_iter().flatten().filter(runs).count();
            ensure!(run == 2, "{run} run");
            Ok(Some(()))
        })
        .await
}

/// Removes the queues and what is in them, while Kueue can take its finalizers off.
async fn remove(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.kubectl.run(&["--namespace=research", "delete", "--all", "--wait=false", "jobs,pods"]).await?;
    cluster
        .until("end of all workloads", PATIENCE, async |this| {
            let workloads = this.api.get(WORKLOADS).await?;
            Ok(workloads["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
        })
        .await?;
    let queues = cluster.files.at("queues.yaml").display().to_string();
    cluster.kubectl.run(&["delete", "--ignore-not-found", "--wait=false", "-f", &queues]).await?;
    cluster
        .until("end of the namespace", PATIENCE, async |this| {
            Ok(this.api.find(NAMESPACE).await?.is_none().then_some(()))
        })
        .await
}
