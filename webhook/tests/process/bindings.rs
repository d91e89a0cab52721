//! What becomes of a binding that doesn't go well.

use http::StatusCode;
use serde_json::{Value, json};

use crate::bench::{Bench, pod, to};
use crate::https::Https;
use crate::replica::Replica;

struct Scene {
    replica: Replica,
    bench: Bench,
    https: Https,
    pod: Value,
}

impl Scene {
    /// One node with one card, and a pod that asks for all of it.
    async fn new() -> Self {
        let bench = Bench::with_nodes(&[("n1", 1)]).await;
        let replica = bench.alone(&json!({})).await;
        let (https, pod) = (bench.https(), bench.pod(&pod("a", 0, 0)).await);
        Self { replica, bench, https, pod }
    }

    /// The error of a call of `bind`; empty if there is none.
    async fn bind(&self, pod: &Value) -> String {
        let answer = self.https.post(self.replica.extender, "/bind", to(pod, "n1").to_string()).await.json();
        answer["Error"].as_str().unwrap().to_owned()
    }

    async fn reservations(&self) -> f64 {
        self.replica.metric("divvy_reservations", &[]).await
    }
}

#[tokio::test]
async fn binding_with_lost_answer_is_looked_up_and_counts() {
    let scene = Scene::new().await;
    scene.bench.server.lose_answers("create", "/binding", 1);
    assert_eq!(scene.bind(&scene.pod).await, "");
    assert!(scene.bench.planned("a").is_some());
    assert!((scene.reservations().await - 1.0).abs() < 0.5);
    assert_eq!(scene.bind(&scene.pod).await, "", "and again");
    let other = scene.bench.pod(&pod("b", 8, 0)).await;
    assert!(!scene.bind(&other).await.is_empty(), "its card is promised");
}

#[tokio::test]
async fn unanswered_binding_keeps_its_reservation() {
    let scene = Scene::new().await;
    scene.bench.server.swallow("create", "/binding", 1);
    let why = scene.bind(&scene.pod).await;
    assert!(why.contains("didn't answer"), "{why}");
    assert!((scene.reservations().await - 1.0).abs() < 0.5, "it may arrive late");
    assert_eq!(scene.bench.planned("a"), None);
    assert_eq!(scene.bind(&scene.pod).await, "");
    assert!(scene.bench.planned("a").is_some());
}

#[tokio::test]
async fn refused_binding_frees_the_gpu() {
    let scene = Scene::new().await;
    scene.bench.server.fail("create", "/binding", 1, StatusCode::FORBIDDEN);
    assert!(!scene.bind(&scene.pod).await.is_empty());
    assert!(scene.reservations().await < 0.5);

    // Its namesake is another pod.
    scene.bench.server.delete("Pod", "default", "a", Some(0)).unwrap();
    let namesake = scene.bench.pod(&pod("a", 0, 0)).await;
    let args = crate::bench::about(&scene.pod, &["n1"]);
    assert_eq!(
        scene.https.post(scene.replica.extender, "/filter", args.to_string()).await.json()["NodeNames"],
        json!(["n1"])
    );
    // The API server compares the UID, unless the watch has shown the end of the pod before.
    let why = scene.bind(&scene.pod).await;
    assert!(why.contains("UID") || why.contains("not known"), "{why}");
    assert!(scene.reservations().await < 0.5);
    assert_eq!(scene.bench.planned("a"), None);
    scene.replica.counts("divvy_pending_pods", &[], 1.0).await;
    assert_eq!(scene.bind(&namesake).await, "");
    assert!(scene.bench.planned("a").is_some());
}

#[tokio::test]
async fn pod_bound_by_another_scheduler_loses_its_reservation() {
    let scene = Scene::new().await;
    scene.bench.server.bind("default", "a", "n2", &json!({})).unwrap();
    let why = scene.bind(&scene.pod).await;
    assert!(why.contains("n2") || why.contains("allocated GPUs already"), "{why}");
    assert!(scene.reservations().await < 0.5);
}

#[tokio::test]
async fn failed_binding_is_retried_with_the_same_reservation() {
    let scene = Scene::new().await;
    scene.bench.server.fail("create", "/binding", 1, StatusCode::INTERNAL_SERVER_ERROR);
    let why = scene.bind(&scene.pod).await;
    assert!(!why.is_empty());
    assert_eq!(scene.bind(&scene.pod).await, "");
    assert!(scene.bench.planned("a").is_some());
}
