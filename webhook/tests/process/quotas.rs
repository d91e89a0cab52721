//! Quotas of GPUs by model, through the API server, a leader that is killed, and the one that leads after it.

use divvy_api::gpuquota::GpuQuota;
use divvy_api::names::annotation::CARD_MODEL;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::bench::{Bench, pod, to};
use crate::replica::Replica;
use crate::until;

impl Bench {
    fn quota(&self, hard: &Value) {
        self.server.create(&json!(GpuQuota::crd())).unwrap();
        let quota = json!({
            "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuQuota", "metadata": { "namespace": "default", "name": "a100" },
            "spec": { "models": ["A100"], "hard": hard },
        });
        self.server.create(&quota).unwrap();
    }

    /// The error of `bind`; empty if there is none.
    async fn bind(&self, leader: &Replica, pod: &Value, node: &str) -> String {
        let answer = self.patiently(&self.https(), leader, "/bind", &to(pod, node)).await.json();
        answer["Error"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn quota_is_kept_to_at_bindings_and_by_the_next_leader() {
    let bench = Bench::with_nodes(&[("n1", 2), ("n2", 2)]).await;
    bench.quota(&json!({ "gpu": 2 }));
    let [mut leader, follower] = bench.pair(&json!({})).await;
    let mut pods = Vec::new();
    for name in ["a", "b", "c"] {
        pods.push(bench.pod(&pod(name, 8, 0)).await);
    }
    assert_eq!(bench.bind(&leader, &pods[0], "n1").await, "");
    assert_eq!(bench.bind(&leader, &pods[1], "n2").await, "");
    let exceeded = "exceeded GpuQuota a100, requested: gpu=1, used: gpu=2, limited: gpu=2";
    assert_eq!(bench.bind(&leader, &pods[2], "n1").await, format!("node n1: {exceeded}"));
    for replica in [&leader, &follower] {
        let explained = async || {
            let answer = bench.explain(replica, &pods[2]).await;
            let verdict = answer["verdict"].as_str().unwrap().to_owned();
            (verdict == format!("0/2 nodes are available: 2 {exceeded}")).then_some(())
        };
        until("the quota in an explanation", explained).await;
    }
    let create = async |pod| bench.create("/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(create(pod("patient", 8, 0)).await.code, 201, "a node with another model may come");
    let mut named = pod("d", 8, 0);
    named["metadata"]["annotations"] = json!({ CARD_MODEL: "A100" });
    let refused = create(named).await;
    assert_eq!(refused.code, 403, "{}", refused.object);
    let message = refused.object["message"].as_str().unwrap();
    assert!(message.ends_with(&format!("{exceeded}: kubectl divvy quota shows what is held")), "{message}");

    leader.signal("KILL").await;
    leader.ended().await;
    assert_eq!(bench.bind(&follower, &pods[2], "n1").await, format!("node n1: {exceeded}"));
    bench.server.delete("Pod", "default", "a", Some(0)).unwrap();
    until("the end of a pod", async || bench.bind(&follower, &pods[2], "n1").await.is_empty().then_some(())).await;
    assert!(bench.planned("c").is_some());
}

#[tokio::test]
async fn without_the_definition_there_are_no_quotas() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let a = bench.pod(&pod("a", 8, 0)).await;
    assert_eq!(bench.bind(&replica, &a, "n1").await, "");
    bench.quota(&json!({ "gpu": 1 }));
    let explained = async || {
        let verdict = bench.explain(&replica, &pod("b", 8, 0)).await["verdict"].to_string();
        verdict.contains("exceeded GpuQuota a100").then_some(())
    };
    until("a definition that came later", explained).await;
}
