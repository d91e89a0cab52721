//! What the pods that cost most cost a review, counted.

use std::time::Duration;

use divvy_api::annotation::MOST_ITEMS;
use divvy_index::Index;
use divvy_index::demand::SchedulingConfig;
use divvy_index::fixture::{node, status};
use divvy_placement::matchings;

use super::*;

const NODES: usize = 300;
const CARDS: usize = 8;
/// Models of the cluster's GPUs.
const MODELS: u64 = 3;
/// Most annotations of an object (`TotalAnnotationSizeLimitB` of the API server).
const LARGEST: usize = 256 << 10;

/// Nodes of several models that take nobody's pods from the review.
fn cluster() -> Index {
    let index = Index::new(SchedulingConfig::default());
    for number in 0..NODES {
        let mut node = node(&format!("n{number}"), CARDS);
        for card in &mut status(&mut node).cards {
            card.model = format!("NVIDIA H{} 80GB", number as u64 % MODELS);
        }
        index.apply_gpu_node(&format!("n{number}"), &node);
    }
    index
}

/// A pod of so many GPUs, of these models.
fn of_models(cards: usize, models: &str) -> Value {
    let mut pod =
        pod(json!([container("main", json!({ "nvidia.com/gpu": cards.to_string(), "nvidia.com/gpumem": "8Gi" }))]));
    pod["metadata"]["annotations"] = json!({ "divvy.dev/card-model": models });
    pod
}

/// The review of the pod, and how often a model was compared with a pattern.
fn review_counted(index: &Index, pod: &Value) -> (Reply, u64) {
    // Nothing is left out for lack of time, as it would be in a review.
    let fits = |demand: &Demand| Some(index.snapshot_for(demand).feasibility(demand, Duration::from_secs(1 << 20)));
    let (body, before) = (question("CREATE", "Pod", pod.clone(), Value::Null).to_string(), matchings());
    let reply = reply(&review(body.as_bytes(), Endpoint::Mutate, &Settings::default(), &fits).body);
    (reply, matchings() - before)
}

#[test]
fn largest_list_is_matched_once_for_each_model() {
    let (index, unmatched) = (cluster(), vec!["A100 40GB rev 2"; MOST_ITEMS].join(","));
    let patterns = MOST_ITEMS as u64;
    let (reply, matched) = review_counted(&index, &of_models(1, &format!("{},=NVIDIA H1 80GB", &unmatched[16..])));
    assert!(reply.allowed && reply.warnings.is_empty(), "{reply:?}");
    assert_eq!(matched, MODELS * patterns, "all nodes were looked at");

    // Reasons are those of a few nodes, each with GPUs of one model.
    let (reply, matched) = review_counted(&index, &of_models(1, &unmatched));
    assert!(reply.warnings[0].starts_with("0/300 nodes are available"), "{reply:?}");
    let all = patterns * (NODES * CARDS) as u64;
    assert!(matched <= patterns * 60 && matched * 30 < all, "{matched} of {all}");
}

#[test]
fn list_as_long_as_an_object_may_be_is_refused_unread() {
    let index = cluster();
    for list in ["a,".repeat(LARGEST / 2), "=x,".repeat(LARGEST / 3), "a".repeat(LARGEST)] {
        let (reply, matched) = review_counted(&index, &of_models(1, &list));
        let refusal = reply.refusal();
        assert!(refusal.starts_with("422 Invalid: annotation divvy.dev/card-model: "), "{refusal}");
        assert!(refusal.contains("expected at most 64 items"), "{refusal}");
        assert_eq!((matched, refusal.len() < 300), (0, true), "{refusal}");
    }
}

/// Most bytes of a request to the API server (`MaxRequestBodyBytes`).
const REQUEST: usize = 3 << 20;

/// So many containers with these limits as make the largest pod.
fn as_many(limits: &Value) -> Vec<Value> {
    let each = container("c00000", limits.clone()).to_string().len() + 1;
    (0..REQUEST / each).map(|number| container(&format!("c{number}"), limits.clone())).collect()
}

/// Bytes that are answered to the review of an object.
fn answered(endpoint: Endpoint, question: &Value) -> (Reply, usize) {
    let body = review(question.to_string().as_bytes(), endpoint, &Settings::default(), &nothing_known).body;
    (reply(&body), body.len())
}

#[test]
fn pod_of_thousands_of_requests_is_refused_unplaced() {
    let containers = as_many(&json!({ "nvidia.com/gpu": "1" }));
    let told = format!("422 Invalid: spec: {} containers request GPUs: allowed are 64 in a pod", containers.len());
    for pod in [
        pod(json!(containers)),
        json!({ "metadata": { "name": "a" }, "spec": { "containers": [], "initContainers": containers } }),
    ] {
        let asked = std::cell::Cell::new(0);
        let fits = |_: &Demand| {
            asked.set(asked.get() + 1);
            None
        };
        let body = question("CREATE", "Pod", pod.clone(), Value::Null).to_string();
        let reply = reply(&review(body.as_bytes(), Endpoint::Mutate, &Settings::default(), &fits).body);
        assert_eq!((reply.refusal(), asked.get()), (&*told, 0));
        let template = json!({ "metadata": {}, "spec": { "template": pod } });
        let body = question("CREATE", "Deployment", template, Value::Null).to_string();
        let reply = self::reply(&review(body.as_bytes(), Endpoint::Templates, &Settings::default(), &fits).body);
        assert!(reply.warnings[0].starts_with("its pods would be refused: spec: "), "{reply:?}");
        assert_eq!(asked.get(), 0);
    }
}

#[test]
fn thousands_of_mistakes_are_told_by_a_few() {
    let pod = pod(json!(as_many(&json!({ "nvidia.com/gpu": "x" }))));
    for endpoint in [Endpoint::Mutate, Endpoint::Validate] {
        let (reply, bytes) = answered(endpoint, &question("CREATE", "Pod", pod.clone(), Value::Null));
        assert!(reply.refusal().ends_with(" more") && bytes < 8192, "{bytes}: {reply:?}");
    }
}

#[test]
fn ephemeral_containers_are_compared_by_name_once() {
    let with = |number: usize| {
        let all: Vec<Value> = (0..number).map(|number| json!({ "name": format!("c{number}") })).collect();
        let main = container("main", json!({ "nvidia.com/gpu": "1" }));
        json!({ "metadata": {}, "spec": { "containers": [main], "ephemeralContainers": all } })
    };
    // Compared one with another, they would take minutes.
    let mut question = question("UPDATE", "Pod", with(2 * REQUEST / 50), with(2 * REQUEST / 50 - 1));
    question["request"]["subResource"] = "ephemeralcontainers".into();
    let (reply, bytes) = answered(Endpoint::Mutate, &question);
    assert!(reply.allowed && reply.patch.len() == 1 && bytes < 2048, "{bytes}");
}
