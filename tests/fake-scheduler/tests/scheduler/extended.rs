//! What the extender is asked, and what is made of its answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use fake_scheduler::extender::Extender;
use serde_json::{Value, json};

use crate::{Bench, pod};

fn cards(name: &str) -> Value {
    pod(name, &json!({ "nvidia.com/gpu": "1" }))
}

fn keeps(names: &[&str]) -> Value {
    json!({ "Nodes": null, "NodeNames": names, "FailedNodes": null, "FailedAndUnresolvableNodes": null, "Error": "" })
}

fn verbs(bench: &Bench) -> Vec<String> {
    bench.calls().into_iter().map(|(path, _)| path).collect()
}

#[tokio::test]
async fn extender_gets_node_names_and_binds_the_one_it_kept() {
    let bench = Bench::extended(3, |_| {}, |path, _| if path == "/filter" { keeps(&["b"]) } else { Value::Null }).await;
    bench.create(&cards("p"));
    assert_eq!(bench.bound("p").await, "b");
    let pod = bench.server.get("Pod", "default", "p").unwrap();
    assert_eq!(pod["metadata"]["annotations"]["divvy.dev/planned"], "cards");
    // One node is left: nobody need be asked which is best.
    let [(filter, mut question), (bind, binding)] = bench.calls().try_into().unwrap();
    assert_eq!((&*filter, &*bind), ("/filter", "/bind"));
    let asked = question["Pod"].take();
    assert_eq!(question, json!({ "Pod": null, "Nodes": null, "NodeNames": ["a", "b", "c"] }));
    assert_eq!((&asked["metadata"]["uid"], &asked["kind"]), (&pod["metadata"]["uid"], &Value::Null));
    let uid = &pod["metadata"]["uid"];
    assert_eq!(binding, json!({ "PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": "b" }));
}

#[tokio::test]
async fn the_extenders_scores_outweigh_the_schedulers_own() {
    let answer = |path: &str, body: &Value| match path {
        // In any letter case.
        "/filter" => json!({ "nodenames": body["NodeNames"] }),
        "/prioritize" => json!([{ "Host": "a", "Score": 1 }, { "host": "b", "score": 9 }, { "Host": "c", "Score": 8 }]),
        _ => Value::Null,
    };
    let weighty = |extender: &mut Extender| extender.weight = 5;
    let bench = Bench::extended(3, weighty, answer).await;
    for number in 0..3 {
        let name = format!("p-{number}");
        bench.create(&cards(&name));
        assert_eq!(bench.bound(&name).await, "b");
    }
    assert_eq!(verbs(&bench), ["/filter", "/prioritize", "/bind"].repeat(3));
    assert!(bench.extender.as_ref().unwrap().connections() <= 2, "connections are kept");
}

#[tokio::test]
async fn pods_without_cards_are_none_of_the_extenders_business() {
    let bench = Bench::extended(2, |_| {}, |_, _| panic!("asked")).await;
    bench.create(&pod("p", &json!({ "cpu": "1" })));
    bench.bound("p").await;
    assert!(bench.calls().is_empty());
}

#[tokio::test]
async fn unschedulable_pod_has_reasons_and_waits_for_nodes() {
    let answer = |path: &str, body: &Value| match path {
        "/filter" if body["Pod"]["metadata"]["name"] == "other" => keeps(&["a"]),
        "/filter" => json!({
            "NodeNames": [], "FailedNodes": { "a": "every card is taken", "b": "every card is taken" },
            "FailedAndUnresolvableNodes": { "c": "no such card" },
        }),
        _ => Value::Null,
    };
    let bench = Bench::extended(4, |_| {}, answer).await;
    bench.server.edit("Node", "", "d", |node| node["spec"]["unschedulable"] = true.into()).unwrap();
    bench.create(&cards("p"));
    let message = "0/4 nodes are available: 1 no such card, 1 node(s) were unschedulable, 2 every card is taken.";
    assert_eq!(bench.refused("p").await, ("Unschedulable".to_owned(), message.to_owned()));
    assert_eq!(verbs(&bench), ["/filter"]);
    // Another pod is served meanwhile.
    bench.create(&cards("other"));
    assert_eq!(bench.bound("other").await, "a");
    // Its arrival on a node is something new already.
    bench.events("p", 2).await;
    bench.server.edit("Node", "", "a", |node| node["metadata"]["annotations"] = json!({ "divvy.dev/x": "1" })).unwrap();
    bench.events("p", 3).await;
    assert_eq!(verbs(&bench).iter().filter(|verb| *verb == "/filter").count(), 4);
}

#[tokio::test]
async fn an_extender_that_fails_is_asked_again_a_little_later() {
    let calls = AtomicUsize::new(0);
    let answer = move |path: &str, _: &Value| match (path, calls.fetch_add(1, Ordering::Relaxed)) {
        ("/filter", 0) => json!({ "Error": "the index isn't filled yet" }),
        ("/filter", 1) => keeps(&["elsewhere"]),
        ("/filter", _) => keeps(&["a"]),
        _ => Value::Null,
    };
    let bench = Bench::extended(2, |_| {}, answer).await;
    bench.create(&cards("p"));
    let refusal = ("SchedulerError".to_owned(), "the index isn't filled yet".to_owned());
    assert_eq!(bench.refused("p").await, refusal);
    assert_eq!(bench.bound("p").await, "a");
    let events = bench.events("p", 3).await.join("\n");
    assert!(
        events.contains("claims a filtered node \"elsewhere\" which is not found in the input node list"),
        "{events}"
    );
}

#[tokio::test]
async fn an_ignorable_extender_holds_nobody_up() {
    let ignorable = |extender: &mut Extender| {
        extender.ignorable = true;
        extender.bind_verb.clear();
    };
    let bench = Bench::extended(1, ignorable, |_, _| json!({ "Error": "out of order" })).await;
    bench.create(&cards("p"));
    assert_eq!(bench.bound("p").await, "a");
}

#[tokio::test]
async fn a_binding_that_fails_frees_the_node_and_is_tried_again() {
    let binds = AtomicUsize::new(0);
    let answer = move |path: &str, body: &Value| match path {
        "/filter" => json!({ "NodeNames": body["NodeNames"] }),
        "/prioritize" => json!([]),
        _ if binds.fetch_add(1, Ordering::Relaxed) == 0 => json!({ "Error": "the promise is gone" }),
        _ => Value::Null,
    };
    let bench = Bench::extended(1, |_| {}, answer).await;
    let whole = pod("p", &json!({ "nvidia.com/gpu": "8" }));
    bench.create(&whole);
    let refusal = ("SchedulerError".to_owned(), "the promise is gone".to_owned());
    assert_eq!(bench.refused("p").await, refusal);
    assert_eq!(bench.bound("p").await, "a");
    // It counts there again.
    bench.create(&cards("late"));
    assert_eq!(bench.refused("late").await.1, "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
}

#[tokio::test]
async fn a_pod_that_was_bound_after_all_is_left_there() {
    let answer = |path: &str, body: &Value| match path {
        "/filter" => json!({ "NodeNames": body["NodeNames"] }),
        _ if body["PodName"] == "p" => json!({ "Error": crate::LATE }),
        _ => Value::Null,
    };
    let bench = Bench::extended(1, |_| {}, answer).await;
    bench.create(&pod("p", &json!({ "nvidia.com/gpu": "5" })));
    bench.bound("p").await;
    bench.create(&pod("q", &json!({ "nvidia.com/gpu": "5" })));
    assert_eq!(bench.refused("q").await.1, "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
    assert_eq!(verbs(&bench), ["/filter", "/bind"]);
    assert_eq!(bench.server.get("Pod", "default", "p").unwrap()["status"]["conditions"][0]["status"], "True");
}

#[tokio::test]
async fn ignored_resources_are_not_summed() {
    let ignores = |extender: &mut Extender| extender.managed_resources[0].ignored_by_scheduler = true;
    let answer = |path: &str, body: &Value| match path {
        "/filter" => json!({ "NodeNames": body["NodeNames"] }),
        _ => Value::Null,
    };
    let bench = Bench::extended(1, ignores, answer).await;
    bench.create(&pod("p", &json!({ "nvidia.com/gpu": "100" })));
    assert_eq!(bench.bound("p").await, "a");
}

#[test]
fn an_entry_of_a_real_configuration_is_understood() {
    let entry = json!({
        "urlPrefix": "https://divvy-webhook.divvy-system.svc", "filterVerb": "filter", "prioritizeVerb": "prioritize",
        "bindVerb": "bind", "preemptVerb": "preempt", "weight": 1, "enableHTTPS": true, "nodeCacheCapable": true,
        "httpTimeout": "5s", "managedResources": [{ "name": "nvidia.com/gpu", "ignoredByScheduler": false }],
        "tlsConfig": { "caFile": "/etc/kubernetes/pki/ca.crt" },
    });
    let extender: Extender = serde_json::from_value(entry).unwrap();
    assert_eq!((&*extender.bind_verb, &*extender.managed_resources[0].name), ("bind", "nvidia.com/gpu"));
}
