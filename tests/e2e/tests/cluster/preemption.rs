//! Pods of a high priority on cards that pods of a low one have filled: whom kube-scheduler evicts when it asks us, and for
//! whom the cards are kept.
//!
//! The scheduler counts sums. It evicts where they lack something, and only then asks us whom else it takes; so pods here
//! say all that they want of a card in amounts.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use divvy_api::CardId;
use divvy_api::ContainerKind::App;
use divvy_api::annotation::{self, Cards};
use divvy_api::names::annotation::{self as keys, CARD_UUID};
use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::node::CARDS;
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::{containers, view};
use divvy_testkit::pods::PodShape;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::webhook::as_planned;

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const PRIORITIES: [(&str, i32); 3] = [("lowest", 1), ("low", 100), ("high", 1000)];
/// A class whose pods evict nobody.
const PATIENT: &str = "patient";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
/// A card, and nothing beside it.
const WHOLE: [(&str, &str); 3] = [("gpu", "1"), ("gpumem", "80Gi"), ("gpucores", "100")];
const TWO_WHOLE: [(&str, &str); 3] = [("gpu", "2"), ("gpumem", "80Gi"), ("gpucores", "100")];
/// One of two pods of 50 and 30 GiB that fill a card together.
const LARGE: [(&str, &str); 3] = [("gpu", "1"), ("gpumem", "50Gi"), ("gpucores", "50")];
const SMALL: [(&str, &str); 3] = [("gpu", "1"), ("gpumem", "30Gi"), ("gpucores", "20")];
/// Cards of which two pods share one.
const SHARED: u32 = 2;
/// Seconds that a pod may take to end: longer than all of this.
const ENDLESS: u64 = 3600;

type Names = BTreeSet<String>;

async fn create_classes(cluster: &Cluster) -> anyhow::Result<()> {
    let preempting = PRIORITIES.map(|(name, value)| (name, value, "PreemptLowerPriority"));
    for (name, value, policy) in preempting.into_iter().chain([(PATIENT, 1000, "Never")]) {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            "preemptionPolicy": policy,
        });
        cluster.api.create(CLASSES, &class).await?;
    }
    Ok(())
}

async fn delete_classes(cluster: &Cluster) -> anyhow::Result<()> {
    for name in PRIORITIES.map(|(name, _)| name).into_iter().chain([PATIENT]) {
        cluster.api.delete(&format!("{CLASSES}/{name}")).await?;
    }
    Ok(())
}

/// The leader evicts the fewest that make room, and a kube-scheduler that nobody has configured evicts nobody beside it. Whom a
/// budget keeps stays, nobody goes for a pod that never preempts or for an equal, and what a pod leaves is kept while it ends.
pub(crate) async fn by_the_leader(cluster: &mut Cluster) -> anyhow::Result<()> {
    create_classes(cluster).await?;
    cluster.start_webhook().await?;
    cluster.configure_webhook(&json!({"scheduling": "gates"})).await?;
    cluster.until("leader", PATIENCE, async |this| Ok(this.webhook.leader().await)).await?;
    cluster.webhook_called().await?;
    fill(cluster).await?;
    evicting(cluster, &pod("urgent", "high", &WHOLE), 1, &[]).await?;
    evicting(cluster, &pod("pair", "high", &TWO_WHOLE), 2, &[]).await?;
    evicting(cluster, &pod("slice", "high", &SMALL), 1, &[]).await?;
    evicting(cluster, &pod("stock", "high", &[("gpu", "1")]), 1, &[]).await?;
    cluster.agree().await?;
    as_planned(cluster).await?;
    for (name, class) in [("equal", "low"), ("patient", PATIENT)] {
        waiting(cluster, &pod(name, class, &WHOLE)).await?;
    }
    guarded(cluster).await?;
    kept_by_the_leader(cluster).await?;
    cluster.clear().await?;
    delete_classes(cluster).await?;
    cluster.configure_webhook(&json!({"scheduling": "extender"})).await?;
    cluster.stop_webhook().await
}

/// Creates a pod that has no place, waits until it says so, and looks whether anybody went for it.
async fn waiting(cluster: &mut Cluster, pod: &Value) -> anyhow::Result<()> {
    let (name, before) = (view::name(pod), names(cluster).await?);
    cluster.create_objects(vec![pod.clone()]).await?;
    println!("  {name} waits: {}", cluster.until_pod(name, view::unplaced).await?);
    cluster.api.delete(&format!("{PODS}/{name}")).await?;
    ensure!(names(cluster).await? == before, "pods went for it");
    Ok(())
}

/// A PodDisruptionBudget keeps all pods of low priority; when it is gone one of them goes.
async fn guarded(cluster: &mut Cluster) -> anyhow::Result<()> {
    let low = async |this: &mut Cluster| {
        let pods = this.list().await?;
        Ok::<_, anyhow::Error>(
            pods.into_iter().filter(|pod| pod["spec"]["priorityClassName"] == "low").collect::<Vec<_>>(),
        )
    };
    let kept = low(cluster).await?;
    for pod in &kept {
        let labels = json!({"metadata": {"labels": {"kept": "true"}}});
        cluster.api.patch(&format!("{PODS}/{}", view::name(pod)), Part::Object, &labels).await?;
    }
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all"},
        "spec": {"minAvailable": kept.len(), "selector": {"matchLabels": {"kept": "true"}}},
    });
    cluster.api.create(BUDGETS, &budget).await?;
    let path = format!("{BUDGETS}/all");
    let judged = async |this: &mut Cluster| {
        let status = this.api.get(&path).await?["status"].take();
        Ok((status["currentHealthy"].as_u64() == u64::try_from(kept.len()).ok()).then_some(()))
    };
    cluster.until("a budget that counts", PATIENCE, judged).await?;
    cluster.create_objects(vec![pod("barred", "high", &WHOLE)]).await?;
    let refused = async |this: &mut Cluster| {
        let page = this.api.get("/metrics").await?;
        let is_refusal = |line: &str| {
            line.starts_with("apiserver_request_total{code=\"429\"") && line.contains("subresource=\"eviction\"")
        };
        Ok(page.as_str().is_some_and(|page| page.lines().any(is_refusal)).then_some(()))
    };
    cluster.until("an eviction that is refused", PATIENCE, refused).await?;
    ensure!(low(cluster).await?.len() == kept.len(), "pods went in spite of the budget");
    cluster.api.delete(&path).await?;
    cluster.until_pod("barred", |pod| view::is_ready(pod).then_some(())).await?;
    let left = low(cluster).await?.len();
    println!("  barred runs once the budget is gone; {} of {} went", kept.len() - left, kept.len());
    ensure!(left + 1 == kept.len(), "one is enough");
    Ok(())
}

/// The pod that is evicted takes its time. What it leaves goes to whom it goes for, and the others stay.
async fn kept_by_the_leader(cluster: &mut Cluster) -> anyhow::Result<()> {
    let low =
        cluster.list().await?.into_iter().find(|pod| view::name(pod).starts_with("alone-")).context("one is left")?;
    cluster.api.delete(&format!("{PODS}/{}", view::name(&low))).await?;
    let mut leaver = pod("leaver", "lowest", &WHOLE);
    leaver["spec"]["terminationGracePeriodSeconds"] = json!(ENDLESS);
    run(cluster, leaver).await?;
    let (left, mut expected) = (card(cluster, "leaver").await?, names(cluster).await?);
    let uid = cluster.until_pod("leaver", |pod| Some(view::uid(pod).to_owned())).await?;
    let key = (uid, "main".to_owned());
    cluster.create_objects(vec![pod("late", "high", &WHOLE)]).await?;
    cluster.until_pod("leaver", |pod| pod["metadata"]["deletionTimestamp"].as_str().map(drop)).await?;
    // The kubelet starts a container anew that ends before it knows that the pod is to end.
    let gone = async |this: &mut Cluster| {
        this.look()?.running.get(&key).map_or(Ok(()), containers::kill)?;
        Ok((!names(this).await?.contains("leaver")).then_some(()))
    };
    cluster.until("end of pod leaver", PATIENCE, gone).await?;
    cluster.until_pod("late", |pod| view::is_ready(pod).then_some(())).await?;
    ensure!(card(cluster, "late").await? == left, "it isn't where it was made room");
    expected.remove("leaver");
    expected.insert("late".to_owned());
    ensure!(names(cluster).await? == expected, "others went too");
    cluster.agree().await?;
    as_planned(cluster).await
}

/// As many pods of low priority go as it takes, and none for its equals; what they leave is kept for whom they left.
pub(crate) async fn by_priority(cluster: &mut Cluster) -> anyhow::Result<()> {
    create_classes(cluster).await?;
    cluster.start_webhook().await?;
    cluster.restart_scheduler(true).await?;
    fill(cluster).await?;
    // The sums lack 80 GiB: the scheduler takes a large and a small pod that came late. They lie on two cards.
    evicting(cluster, &pod("urgent", "high", &WHOLE), 3, &["right-large", "left-small"]).await?;
    evicting(cluster, &pod("pair", "high", &TWO_WHOLE), 2, &[]).await?;
    evicting(cluster, &pod("slice", "high", &SMALL), 1, &[]).await?;
    cluster.agree().await?;
    as_planned(cluster).await?;
    nobody(cluster).await?;
    kept(cluster).await?;
    delete_classes(cluster).await?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

fn pod(name: &str, class: &str, limits: &[(&str, &str)]) -> Value {
    let mut pod = pods::plain(&PodShape::new(name).with(App, "main", limits));
    pod["spec"]["priorityClassName"] = json!(class);
    pod
}

/// All cards are full: of pods alone on a card, and after them, in this order, of pairs.
async fn fill(cluster: &mut Cluster) -> anyhow::Result<()> {
    let alone = CARDS - SHARED;
    let objects = (0..alone).map(|number| pod(&format!("alone-{number}"), "low", &WHOLE)).collect();
    cluster.create_objects(objects).await?;
    cluster.all_running(usize::try_from(alone)?).await?;
    let mut cards = Vec::new();
    for name in ["left-large", "right-large"] {
        a_second_later(cluster).await?;
        run(cluster, pod(name, "low", &LARGE)).await?;
        cards.push(card(cluster, name).await?);
    }
    for (name, card) in [("right-small", &cards[1]), ("left-small", &cards[0])] {
        a_second_later(cluster).await?;
        let mut small = pod(name, "low", &SMALL);
        small["metadata"]["annotations"][CARD_UUID] = json!(card);
        run(cluster, small).await?;
    }
    cluster.agree().await.map(drop)
}

/// The scheduler takes the pods that were started last, by the second.
async fn a_second_later(cluster: &mut Cluster) -> anyhow::Result<()> {
    let began = Timestamp::now().as_second();
    let next = async |_: &mut Cluster| Ok((Timestamp::now().as_second() > began).then_some(()));
    cluster.until("another second", PATIENCE, next).await
}

async fn run(cluster: &mut Cluster, pod: Value) -> anyhow::Result<()> {
    let name = view::name(&pod).to_owned();
    cluster.create_objects(vec![pod]).await?;
    cluster.until_pod(&name, |pod| view::is_ready(pod).then_some(())).await.with_context(|| format!("pod {name}"))
}

/// The one card of a pod that runs.
async fn card(cluster: &mut Cluster, name: &str) -> anyhow::Result<CardId> {
    let told = |pod: &Value| pod["metadata"]["annotations"][keys::CARDS].as_str().map(str::to_owned);
    let cards: Cards = annotation::decode(&cluster.until_pod(name, told).await?)?;
    let card = cards.containers.into_values().flatten().next();
    Ok(card.with_context(|| format!("pod {name} has no card"))?.uuid)
}

async fn names(cluster: &mut Cluster) -> anyhow::Result<Names> {
    Ok(cluster.list().await?.iter().map(|pod| view::name(pod).to_owned()).collect())
}

/// Creates a pod, waits until it runs, and looks who went for it: so many, these among them.
async fn evicting(cluster: &mut Cluster, pod: &Value, count: usize, among: &[&str]) -> anyhow::Result<()> {
    let name = view::name(pod).to_owned();
    let before = names(cluster).await?;
    run(cluster, pod.clone()).await?;
    let after = names(cluster).await?;
    let gone: Vec<&String> = before.difference(&after).collect();
    println!("  {name} runs; evicted: {gone:?}");
    ensure!(gone.len() == count, "{count} pods are enough");
    ensure!(among.iter().all(|victim| gone.iter().any(|gone| gone == victim)), "the scheduler takes {among:?}");
    cluster.agree().await.map(drop)
}

/// Nobody goes for an equal. Nor does anybody for a pod that asks for whole cards alone: no amount is short, and of slots
/// there are enough. Both wait, and say why.
async fn nobody(cluster: &mut Cluster) -> anyhow::Result<()> {
    for (name, class, limits) in [("equal", "low", WHOLE.as_slice()), ("stock", "high", &[("gpu", "1")])] {
        let before = names(cluster).await?;
        cluster.create_objects(vec![pod(name, class, limits)]).await?;
        let why = cluster.until_pod(name, view::unschedulable).await?;
        println!("  {name} waits: {why}");
        let nominated = cluster.until_pod(name, |pod| Some(pod["status"]["nominatedNodeName"].clone())).await?;
        ensure!(nominated.is_null(), "pods go for it");
        cluster.api.delete(&format!("{PODS}/{name}")).await?;
        ensure!(names(cluster).await? == before, "pods went for it");
    }
    Ok(())
}

/// 20 GiB are left of each of three cards: to the scheduler that is room for 30. The pod on the last of them, and the first
/// to be evicted, doesn't end when it is told to.
async fn leave_edges(cluster: &mut Cluster) -> anyhow::Result<()> {
    const MOST: [(&str, &str); 3] = [("gpu", "1"), ("gpumem", "60Gi"), ("gpucores", "20")];
    run(cluster, pod("filler", "low", &SMALL)).await?;
    let alone: Vec<String> = names(cluster).await?.into_iter().filter(|name| name.starts_with("alone-")).collect();
    for (name, gives_way) in ["edge", "leaver"].into_iter().zip(&alone) {
        cluster.api.delete(&format!("{PODS}/{gives_way}")).await?;
        a_second_later(cluster).await?;
        let mut pod = pod(name, "low", &MOST);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(ENDLESS);
        run(cluster, pod).await?;
    }
    Ok(())
}

/// What an evicted pod leaves is kept for whom it left, whoever asks first when the node says that it is free. Until then
/// the scheduler's own sums have room for both.
async fn kept(cluster: &mut Cluster) -> anyhow::Result<()> {
    leave_edges(cluster).await?;
    let (left, mut expected) = (card(cluster, "leaver").await?, names(cluster).await?);
    let uid = cluster.until_pod("leaver", |pod| Some(view::uid(pod).to_owned())).await?;
    let leaver = cluster.look()?.running.remove(&(uid, "main".to_owned())).context("pod leaver doesn't run")?;
    cluster.create_objects(vec![pod("late", "high", &WHOLE)]).await?;
    let nominated = |pod: &Value| pod["status"]["nominatedNodeName"].as_str().map(str::to_owned);
    cluster.until_pod("late", nominated).await?;
    cluster.until_pod("leaver", |pod| pod["metadata"]["deletionTimestamp"].as_str().map(drop)).await?;

    cluster.daemon.program.signal("STOP")?;
    containers::kill(&leaver)?;
    expected.remove("leaver");
    let gone = async |this: &mut Cluster| Ok((!names(this).await?.contains("leaver")).then_some(()));
    cluster.until("end of pod leaver", PATIENCE, gone).await?;
    // By the scheduler's sums it fits now. It asked us, and we don't know yet that a card is free.
    let refused_by_us = |pod: &Value| view::unschedulable(pod).filter(|why| why.contains("held exclusively"));
    let why = cluster.until_pod("late", refused_by_us).await?;
    println!("  late waits for the node's word: {why}");
    ensure!(names(cluster).await? == &expected | &["late".to_owned()].into(), "others went too");
    cluster.create_objects(vec![pod("thief", "low", &SMALL)]).await?;
    cluster.until_pod("thief", view::unschedulable).await?;
    cluster.daemon.program.signal("CONT")?;

    cluster.until_pod("late", |pod| view::is_ready(pod).then_some(())).await?;
    ensure!(card(cluster, "late").await? == left, "it isn't where it was made room");
    let why = cluster.until_pod("thief", view::unschedulable).await?;
    println!("  late runs on the card that was left for it; who asked meanwhile waits: {why}");
    expected.extend(["late", "thief"].map(str::to_owned));
    ensure!(names(cluster).await? == expected, "others went too");
    cluster.api.delete(&format!("{PODS}/thief")).await?;
    cluster.agree().await?;
    as_planned(cluster).await
}
