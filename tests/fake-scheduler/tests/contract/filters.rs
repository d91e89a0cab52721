//! Filter and prioritize calls, and what becomes of their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::cluster::{Cluster, keeps};

/// Names of the nodes that a call asks about, sorted: a scheduler begins with another one each time.
fn asked(body: &Value) -> Vec<String> {
    let names = body["NodeNames"].as_array().unwrap().iter();
    let mut names: Vec<_> = names.map(|name| name.as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Keeps all nodes and scores none.
fn agreeable(path: &str, body: &Value) -> Value {
    match path {
        "/filter" => json!({ "NodeNames": body["NodeNames"] }),
        "/prioritize" => json!([]),
        _ => Value::Null,
    }
}

pub(crate) async fn extender_gets_node_names_and_binds_the_one_it_kept(cluster: &mut Cluster<'_>) {
    let kept = cluster.node("b");
    let answer =
        move |path: &str, _: &Value| if path == "/filter" { keeps(std::slice::from_ref(&kept)) } else { Value::Null };
    cluster.start(3, json!({}), answer).await;
    let created = cluster.create_gpu_pod("p").await;
    assert_eq!(cluster.bound("p").await, cluster.node("b"));
    assert_eq!(cluster.get("p").await["metadata"]["annotations"]["divvy.dev/planned"], "cards");
    // One node is left: nobody need be asked which is best.
    let [(filter, question), (bind, binding)] = cluster.calls().try_into().unwrap();
    assert_eq!((&*filter, &*bind), ("/filter", "/bind"));
    assert_eq!(asked(&question), ["a", "b", "c"].map(|letter| cluster.node(letter)));
    let fields: Vec<_> = question.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!((fields, &question["Nodes"]), (vec!["NodeNames", "Nodes", "Pod"], &Value::Null));
    let (pod, uid) = (&question["Pod"], &created["metadata"]["uid"]);
    assert_eq!((&pod["metadata"]["uid"], &pod["kind"], &pod["apiVersion"]), (uid, &Value::Null, &Value::Null));
    let (namespace, node) = (&cluster.api.namespace, cluster.node("b"));
    assert_eq!(binding, json!({ "PodName": "p", "PodNamespace": namespace, "PodUID": uid, "Node": node }));
    let assigned = format!("Normal Scheduled Successfully assigned {namespace}/p to {node}");
    assert_eq!(cluster.event("p", |line| line.starts_with("Normal")).await, assigned);
}

pub(crate) async fn weighted_scores_decide(cluster: &mut Cluster<'_>) {
    let nodes = ["a", "b", "c"].map(|letter| cluster.node(letter));
    let answer = move |path: &str, body: &Value| match path {
        // In any letter case.
        "/filter" => json!({ "nodenames": body["NodeNames"] }),
        "/prioritize" => json!([
            { "Host": nodes[0], "Score": 1 }, { "host": nodes[1], "score": 9 }, { "Host": nodes[2], "Score": 2 },
        ]),
        _ => Value::Null,
    };
    cluster.start(3, json!({ "weight": 5 }), answer).await;
    for name in ["p", "q"] {
        cluster.create_gpu_pod(name).await;
        assert_eq!(cluster.bound(name).await, cluster.node("b"));
    }
    assert_eq!(cluster.verbs(), ["/filter", "/prioritize", "/bind"].repeat(2));
    let [_, (_, question), ..] = &cluster.calls()[..] else { panic!("two calls at least") };
    assert_eq!(asked(question), ["a", "b", "c"].map(|letter| cluster.node(letter)));
}

pub(crate) async fn pods_without_managed_resources_are_not_sent(cluster: &mut Cluster<'_>) {
    cluster.start(2, json!({}), agreeable).await;
    cluster.create("p", &json!({ "cpu": "1" })).await;
    cluster.bound("p").await;
    assert!(cluster.calls().is_empty(), "the scheduler binds by itself too");
}

pub(crate) async fn refused_pod_names_the_reasons_by_count(cluster: &mut Cluster<'_>) {
    let [a, b, c] = ["a", "b", "c"].map(|letter| cluster.node(letter));
    let answer = move |_: &str, _: &Value| {
        json!({
            "NodeNames": [], "FailedNodes": { a.clone(): "GPUs are taken", b.clone(): "GPUs are taken" },
            "FailedAndUnresolvableNodes": { c.clone(): "no such GPU" },
        })
    };
    cluster.start(3, json!({}), answer).await;
    cluster.create_gpu_pod("p").await;
    let (reason, message) = cluster.unscheduled("p").await;
    let text = "0/3 nodes are available: 1 no such GPU, 2 GPUs are taken.";
    assert_eq!(reason, "Unschedulable");
    // What preemption adds comes after it.
    assert!(message.starts_with(text), "{message}");
    cluster.event("p", |line| line.starts_with(&format!("Warning FailedScheduling {text}"))).await;
    assert!(cluster.verbs().iter().all(|verb| verb == "/filter"));
}

pub(crate) async fn refused_pod_is_retried_when_a_node_changes(cluster: &mut Cluster<'_>) {
    let is_full = Arc::new(AtomicBool::new(true));
    let nodes = ["a", "b"].map(|letter| cluster.node(letter));
    let answered = Arc::clone(&is_full);
    let answer = move |path: &str, _: &Value| match (path, answered.load(Ordering::Relaxed)) {
        ("/filter", true) => json!({ "NodeNames": [], "FailedNodes": { &nodes[0]: "taken", &nodes[1]: "taken" } }),
        ("/filter", false) => keeps(&nodes[..1]),
        _ => Value::Null,
    };
    cluster.start(2, json!({}), answer).await;
    cluster.create_gpu_pod("p").await;
    cluster.unscheduled("p").await;
    is_full.store(false, Ordering::Relaxed);
    let change = json!({ "metadata": { "annotations": { "divvy.dev/generation": "2" } } });
    let path = format!("/api/v1/nodes/{}/status", cluster.node("b"));
    assert_eq!(cluster.api.patch("merge-patch+json", &path, &change).await.0, 200);
    assert_eq!(cluster.bound("p").await, cluster.node("a"));
}

pub(crate) async fn failing_filter_is_retried(cluster: &mut Cluster<'_>) {
    let is_failing = Arc::new(AtomicBool::new(true));
    let answered = Arc::clone(&is_failing);
    let answer = move |path: &str, body: &Value| {
        if answered.load(Ordering::Relaxed) {
            return json!({ "Error": "the cluster state isn't filled yet" });
        }
        agreeable(path, body)
    };
    cluster.start(2, json!({}), answer).await;
    cluster.create_gpu_pod("p").await;
    let expected = ("SchedulerError".to_owned(), "the cluster state isn't filled yet".to_owned());
    assert_eq!(cluster.unscheduled("p").await, expected);
    is_failing.store(false, Ordering::Relaxed);
    cluster.bound("p").await;
}

pub(crate) async fn unknown_node_of_a_filter_is_an_error(cluster: &mut Cluster<'_>) {
    let answer = |_: &str, _: &Value| keeps(&["elsewhere".to_owned()]);
    cluster.start(2, json!({}), answer).await;
    cluster.create_gpu_pod("p").await;
    let (reason, message) = cluster.unscheduled("p").await;
    assert_eq!(reason, "SchedulerError");
    let text = "claims a filtered node \"elsewhere\" which is not found in the input node list";
    assert!(message.starts_with("extender \"https://127.0.0.1:") && message.ends_with(text), "{message}");
}

pub(crate) async fn ignorable_extender_is_passed_over(cluster: &mut Cluster<'_>) {
    cluster.start(1, json!({ "ignorable": true }), |_, _| json!({ "Error": "out of order" })).await;
    cluster.create_gpu_pod("p").await;
    assert_eq!(cluster.bound("p").await, cluster.node("a"));
    assert_eq!(cluster.verbs(), ["/filter", "/bind"]);
}

pub(crate) async fn ignored_resources_are_not_summed(cluster: &mut Cluster<'_>) {
    let managed = json!([{ "name": "nvidia.com/gpu", "ignoredByScheduler": true }]);
    cluster.start(1, json!({ "managedResources": managed }), agreeable).await;
    cluster.create("p", &json!({ "nvidia.com/gpu": "100" })).await;
    assert_eq!(cluster.bound("p").await, cluster.node("a"));
}
