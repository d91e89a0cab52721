//! Bind calls that fail, or seem to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::cluster::Cluster;

pub(crate) async fn failing_bind_is_retried(cluster: &mut Cluster<'_>) {
    let is_failing = Arc::new(AtomicBool::new(true));
    let answered = Arc::clone(&is_failing);
    let answer = move |path: &str, body: &Value| match path {
        "/filter" => json!({ "NodeNames": body["NodeNames"] }),
        "/bind" if answered.load(Ordering::Relaxed) => json!({ "Error": "the reservation is gone" }),
        _ => Value::Null,
    };
    cluster.start(1, json!({}), answer).await;
    cluster.create("p", &json!({ "nvidia.com/gpu": "8" })).await;
    let expected = ("SchedulerError".to_owned(), "the reservation is gone".to_owned());
    assert_eq!(cluster.unscheduled("p").await, expected);
    cluster.event("p", |line| line == "Warning FailedScheduling the reservation is gone").await;
    is_failing.store(false, Ordering::Relaxed);
    assert_eq!(cluster.bound("p").await, cluster.node("a"));
    // It counts there again.
    cluster.create_gpu_pod("late").await;
    let (_, message) = cluster.unscheduled("late").await;
    assert!(message.starts_with("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), "{message}");
}

pub(crate) async fn pod_that_was_bound_all_the_same_stays(cluster: &mut Cluster<'_>) {
    let answer = |path: &str, body: &Value| match path {
        "/filter" => json!({ "NodeNames": body["NodeNames"] }),
        _ if body["PodName"] == "p" => json!({ "Error": "nobody knows whether it is bound", "Bound": true }),
        _ => Value::Null,
    };
    cluster.start(1, json!({}), answer).await;
    cluster.create("p", &json!({ "nvidia.com/gpu": "5" })).await;
    cluster.bound("p").await;
    cluster.create("q", &json!({ "nvidia.com/gpu": "5" })).await;
    let (_, message) = cluster.unscheduled("q").await;
    assert!(message.starts_with("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), "{message}");
    assert_eq!(cluster.verbs(), ["/filter", "/bind"]);
}
