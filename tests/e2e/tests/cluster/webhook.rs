//! The cluster side: what the API server asks, and what kube-scheduler does with our answers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_api::annotation::{self, Cards, Planned};
use divvy_api::names::GATE;
use divvy_api::names::annotation::{self as keys, GENERATION, NODE_FIT, PLANNED, REQUEST};
use divvy_e2e::api::{Api, Part};
use divvy_e2e::cluster::{Cluster, NODE_PATH, PATIENCE};
use divvy_e2e::node::{CARDS, NODE};
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::view;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

use crate::bursts::say_pods;

const HUNDRED: usize = 100;

/// What kubectl is told, and what isn't held up by us.
pub(crate) async fn reviews(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    let before = reviewed(cluster).await;
    cluster.create_objects(vec![pods::plain(&PodShape::new("plain").with(App, "main", &[]))]).await?;
    cluster.api.patch(&format!("{PODS}/plain"), Part::Object, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    ensure!(reviewed(cluster).await == before, "a pod without cards was reviewed");

    let fits = pods::plain(&gpu("fits", &[("gpumem", "8Gi"), ("gpucores", "30")]));
    let file = cluster.files.write("fits.json", fits.to_string())?.display().to_string();
    cluster
        .until("node that has reported", PATIENCE, async |this| {
            let tried = this.kubectl.say(&["apply", "--dry-run=server", "--filename", &file]).await?;
            Ok(tried.warnings.is_empty().then_some(()))
        })
        .await?;
    let told = apply(cluster, &fits).await?;
    ensure!(told.is_empty(), "warned of a pod that fits: {told}");
    let pod = cluster.api.get(&format!("{PODS}/fits")).await?;
    let annotations = &pod["metadata"]["annotations"];
    let limits = &pod["spec"]["containers"][0]["resources"];
    println!("  limits and requests: {limits}");
    println!("  {REQUEST}: {}", annotations[REQUEST]);
    println!("  {NODE_FIT}: {}", annotations[NODE_FIT]);
    ensure!(limits["limits"] == limits["requests"], "limits and requests differ");
    ensure!(annotations[NODE_FIT].as_str().is_some_and(|fit| fit.contains("node-a")), "no hint");

    let told = apply(cluster, &pods::plain(&gpu("large", &[("gpumem", "200Gi")]))).await?;
    println!("  a pod too large: {told}");
    ensure!(told.contains("none could ever run this pod"), "no warning");
    let refused = apply(cluster, &pods::plain(&gpu("both", &[("gpumem", "1Gi"), ("gpumem-percentage", "5")]))).await;
    let refused = refused.err().context("a contradiction was admitted")?.to_string();
    println!("  a contradiction: {refused}");
    ensure!(refused.contains("spec.containers[0]"), "the field isn't named");
    // 120 000 models, in an annotation as long as the API server takes them.
    let mut endless = pods::plain(&gpu("endless", &[("gpumem", "1Gi")]));
    endless["metadata"]["annotations"] = json!({(keys::CARD_MODEL): "a,".repeat(120_000)});
    let asked = Instant::now();
    let refused = cluster.api.create(&format!("{PODS}?dryRun=All"), &endless).await;
    let refused = refused.err().context("an endless list was admitted")?.to_string();
    println!("  120 000 models, after {:.0?}: {refused}", asked.elapsed());
    ensure!(refused.contains(keys::CARD_MODEL) && refused.contains("at most 64"), "the limit isn't named: {refused}");

    let template = |shape: &PodShape| {
        let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": pods::plain(shape)["spec"]});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": shape.name},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": template},
        })
    };
    let told = apply(cluster, &template(&gpu("deployed", &[("gpumem", "200Gi")]))).await?;
    println!("  a Deployment: {told}");
    ensure!(told.contains("its pods"), "no warning");
    let told = apply(cluster, &template(&PodShape::new("deployed-plain").with(App, "main", &[]))).await?;
    ensure!(told.is_empty(), "warned of a Deployment without cards: {told}");

    gates(cluster).await?;
    outage(cluster).await?;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    cluster.api.delete(deployments).await?;
    // Forgets the pods that it has refused.
    cluster.restart_daemon(&json!({})).await?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

/// Pods that request GPUs get the gate where the leader plans, a copy without GPUs loses it, and what the leader writes isn't
/// reviewed.
async fn gates(cluster: &mut Cluster) -> anyhow::Result<()> {
    let is_gated = |pod: &Value| pod["spec"]["schedulingGates"] == json!([{"name": GATE}]);
    cluster.configure_webhook(&json!({"scheduling": "gates"})).await?;
    cluster.webhook_called().await?;
    let mut copy = pods::plain(&PodShape::new("copy").with(App, "main", &[]));
    copy["spec"]["schedulingGates"] = json!([{"name": GATE}]);
    let copy = cluster.api.create(&format!("{PODS}?dryRun=All"), &copy).await?;
    ensure!(copy["spec"]["schedulingGates"].is_null(), "it would wait for ever: {copy}");
    let gated = cluster.api.create(PODS, &pods::plain(&gpu("gated", &[("gpumem", "1Gi")]))).await?;
    ensure!(is_gated(&gated), "{gated}");
    let planned = json!({"metadata": {"annotations": {(PLANNED): "{}"}}, "spec": {"schedulingGates": null}});
    let path = format!("{PODS}/gated");
    let refused = cluster.api.patch(&path, Part::Object, &planned).await.err().context("a user wrote a plan")?;
    ensure!(refused.to_string().contains(PLANNED), "{refused}");
    let leader = Api::of_account(&cluster.files.at("divvy-webhook.kubeconfig"))?;
    let opened = leader.patch(&path, Part::Object, &planned).await.context("the leader's own plan")?;
    ensure!(opened["metadata"]["annotations"][PLANNED] == "{}" && !is_gated(&opened), "{opened}");
    cluster.api.delete(&path).await?;
    cluster.configure_webhook(&json!({"scheduling": "extender"})).await?;
    cluster.webhook_called().await
}

/// Both replicas are down: GPU pods are refused, others aren't; a CA bundle that was emptied comes back.
async fn outage(cluster: &mut Cluster) -> anyhow::Result<()> {
    for program in cluster.webhook.programs() {
        program.kill().await?;
    }
    cluster.create_objects(vec![pods::plain(&PodShape::new("unharmed").with(App, "main", &[]))]).await?;
    let gpu_pod = pods::plain(&gpu("waits", &[]));
    let refused = cluster.create_objects(vec![gpu_pod.clone()]).await.err().context("nobody completed the pod")?;
    println!("  without a replica: {refused:#}");
    let configuration = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/divvy-webhook";
    let mut emptied = cluster.api.get(configuration).await?["webhooks"].clone();
    emptied[0]["clientConfig"].as_object_mut().context("a clientConfig")?.remove("caBundle");
    cluster.api.patch(configuration, Part::Object, &json!({"webhooks": emptied})).await?;
    let started = Instant::now();
    for program in cluster.webhook.programs() {
        program.start()?;
    }
    cluster.webhook_called().await?;
    println!("  started anew, and the CA bundle put back, after {:.1?}", started.elapsed());
    cluster.create_objects(vec![gpu_pod]).await
}

/// A hundred pods as their users wrote them, completed, placed and bound by us, and run by the kubelet.
pub(crate) async fn a_hundred_pods(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    cluster.restart_scheduler(true).await?;
    let started = Instant::now();
    cluster.create_objects(hundred()).await?;
    println!("  created after {:.1?}", started.elapsed());
    cluster.all_running(HUNDRED).await?;
    println!("  all running after {:.1?}", started.elapsed());
    cluster.agree().await?;
    as_planned(cluster).await?;
    say_outcomes(cluster).await;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

/// The replica that leads is killed again and again while pods are placed.
pub(crate) async fn leader_killed(cluster: &mut Cluster) -> anyhow::Result<()> {
    const KILLS: usize = 6;
    cluster.start_webhook().await?;
    cluster.restart_scheduler(true).await?;
    let objects = hundred();
    let started = Instant::now();
    for some in objects.chunks(HUNDRED.div_ceil(KILLS)) {
        // Whoever leads must be there, so that it can be killed at work.
        let leader = cluster.until("leader", PATIENCE, async |this| Ok(this.webhook.leader().await)).await?;
        create_in_the_end(cluster, some).await?;
        cluster.webhook.replicas[leader].program.kill().await?;
        cluster.webhook.replicas[leader].program.start()?;
    }
    cluster.all_running(HUNDRED).await?;
    println!("  {KILLS} leaders killed, all running after {:.1?}", started.elapsed());
    cluster.agree().await?;
    as_planned(cluster).await?;
    say_outcomes(cluster).await;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

/// A share that is released wakes a pod that waits for it: with the Node's amounts, or, if the scheduler asked before the leader
/// knew, with what the leader writes then.
pub(crate) async fn woken(cluster: &mut Cluster) -> anyhow::Result<()> {
    const ROUNDS: usize = 3;
    cluster.start_webhook().await?;
    cluster.restart_scheduler(true).await?;
    // By the node's sums four more such pods fit; the extender knows that no GPU has so much left.
    let most = |name: String| {
        pods::plain(&PodShape::new(name).with(App, "main", &[("gpu", "4"), ("gpumem-percentage", "60")]))
    };
    let holder = |number: usize| most(format!("holder-{number}"));
    let holders = usize::try_from(CARDS)? / 4;
    cluster.create_objects((0..holders).map(holder).collect()).await?;
    cluster.all_running(holders).await?;
    for round in 0..ROUNDS {
        let name = format!("patient-{round}");
        cluster.create_objects(vec![most(name.clone())]).await?;
        let why = cluster.until_pod(&name, view::unschedulable).await?;
        if round == 0 {
            println!("  the scheduler: {why}");
        }
        // Its back-off has grown to the full ten seconds.
        tokio::time::sleep(Duration::from_secs(15)).await;
        let generation = generation(cluster).await?;
        let deleted = Instant::now();
        cluster.api.delete(&format!("{PODS}/holder-{round}")).await?;
        cluster.until_pod(&name, |pod| pod["spec"]["nodeName"].as_str().map(drop)).await?;
        let placed = deleted.elapsed();
        let is_woken = self::generation(cluster).await? != generation;
        cluster.until_pod(&name, |pod| view::is_ready(pod).then_some(())).await?;
        println!(
            "  the waiting pod placed {placed:.1?} after the deletion, woken by the leader: {is_woken}, running after {:.1?}",
            deleted.elapsed()
        );
    }
    others_are_refused(cluster).await?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

/// Of a Node's annotations the webhook's token may write that one alone.
async fn others_are_refused(cluster: &Cluster) -> anyhow::Result<()> {
    let webhook = cluster.kubectl.with(&cluster.files.at("divvy-webhook.kubeconfig"));
    for (change, words) in [
        ("a=b", "not annotation a"),
        ("divvy.dev/labels=x", "not annotation divvy.dev/labels"),
        ("divvy.dev/generation=x", ""),
    ] {
        let said = webhook.run(&["annotate", "--overwrite", "node", NODE, change]).await;
        let said = said.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(said.contains(words) && said.is_empty() == words.is_empty(), "{change}: {said}");
    }
    let said = webhook.run(&["label", "node", NODE, "a=b"]).await.err().map(|error| error.to_string());
    ensure!(said.as_ref().is_some_and(|said| said.contains("not metadata labels")), "{said:?}");
    Ok(())
}

async fn generation(cluster: &Cluster) -> anyhow::Result<Value> {
    Ok(cluster.api.get(NODE_PATH).await?["metadata"]["annotations"][GENERATION].clone())
}

fn gpu(name: &str, amounts: &[(&str, &str)]) -> PodShape {
    let limits: Vec<(&str, &str)> = [("gpu", "1")].into_iter().chain(amounts.iter().copied()).collect();
    PodShape::new(name).with(App, "main", &limits)
}

/// As users write them.
fn hundred() -> Vec<Value> {
    (0..HUNDRED).map(|number| pods::plain(&pods::mixed(number))).collect()
}

/// Creates pods as a controller does: again, if nobody reviewed them.
async fn create_in_the_end(cluster: &mut Cluster, objects: &[Value]) -> anyhow::Result<()> {
    for object in objects {
        let what = format!("pod {}", view::name(object));
        cluster
            .until(&what, PATIENCE, async |this| match this.api.create(PODS, object).await {
                Err(error) if error.to_string().contains("already exists") => Ok(Some(())),
                created => created.map(|_| Some(())),
            })
            .await?;
    }
    Ok(())
}

/// Applies an object; what kubectl warns of is returned.
async fn apply(cluster: &Cluster, object: &Value) -> anyhow::Result<String> {
    let file = cluster.files.write("applied.json", object.to_string())?;
    Ok(cluster.kubectl.say(&["apply", "--filename", &file.display().to_string()]).await?.warnings)
}

async fn reviewed(cluster: &Cluster) -> u64 {
    cluster.webhook.metric("divvy_admission_reviews_total").await.iter().map(|(_, count)| count).sum()
}

async fn say_outcomes(cluster: &Cluster) {
    for metric in ["divvy_reservation_outcomes_total", "divvy_extender_calls_total"] {
        for (labels, count) in cluster.webhook.metric(metric).await {
            println!("  {metric}{labels} {count}");
        }
    }
}

/// Every pod was bound by us, and has the cards that it was promised.
pub(crate) async fn as_planned(cluster: &mut Cluster) -> anyhow::Result<()> {
    let pods = cluster.list().await?;
    let claiming = |pod: &&Value| {
        view::requests(pod).is_ok_and(|requests| requests.iter().any(|request| request.request.is_some()))
    };
    let (mut kept, mut moved) = (0, BTreeMap::new());
    for pod in pods.iter().filter(claiming) {
        let text = |key: &str| pod["metadata"]["annotations"][key].as_str();
        let planned = text(PLANNED).with_context(|| format!("pod {} wasn't bound by us", view::name(pod)))?;
        let (planned, cards) = (annotation::decode::<Planned>(planned)?, text(keys::CARDS).context("no cards")?);
        let cards: Cards = annotation::decode(cards)?;
        let as_told = cards.containers.iter().all(|(container, cards)| {
            let told = planned.containers.get(container);
            cards.iter().all(|card| {
                told.is_some_and(|told| told.chosen.contains(&card.uuid) || told.reused.contains(&card.uuid))
            })
        });
        if as_told { kept += 1 } else { drop(moved.insert(view::name(pod).to_owned(), (planned, cards))) }
    }
    println!("  {kept} pods have the cards that they were promised, {} others", moved.len());
    ensure!(moved.is_empty(), "not as promised: {moved:?}");
    say_pods(&pods);
    Ok(())
}
