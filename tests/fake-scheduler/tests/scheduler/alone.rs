//! What the scheduler decides by itself.

use serde_json::{Value, json};

use crate::{Bench, pod};

#[tokio::test]
async fn pods_spread_until_full_and_continue_after_a_deletion() {
    let bench = Bench::alone(2).await;
    let mut nodes = Vec::new();
    for name in ["first", "second"] {
        bench.create(&pod(name, &json!({ "cpu": "3" })));
        nodes.push(bench.bound(name).await);
    }
    nodes.sort();
    assert_eq!(nodes, ["a", "b"]);
    bench.create(&pod("third", &json!({ "cpu": "1500m" })));
    let message = "0/2 nodes are available: 2 Insufficient cpu.";
    assert_eq!(bench.refused("third").await, ("Unschedulable".to_owned(), message.to_owned()));
    assert_eq!(bench.events("third", 1).await, [format!("Warning FailedScheduling {message}")]);
    bench.server.delete("Pod", "default", "first", Some(0)).unwrap();
    bench.bound("third").await;
    let events = bench.events("third", 2).await;
    assert!(events.iter().any(|event| event.starts_with("Normal Scheduled Successfully assigned default/third to ")));
}

#[tokio::test]
async fn a_pod_counts_from_the_moment_its_node_is_chosen() {
    let bench = Bench::alone(1).await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        bench.create(&pod(name, &json!({ "nvidia.com/gpu": "2" })));
    }
    let outcomes = bench.until("six outcomes", |view| {
        let pods = view.list("Pod");
        let settled = |pod: &&Value| pod["spec"]["nodeName"].is_string() || !pod["status"]["conditions"].is_null();
        (pods.iter().filter(settled).count() == 6).then_some(pods)
    });
    let bound = outcomes.await.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
    assert_eq!(bound, 4);
}

#[tokio::test]
async fn nodes_are_chosen_by_selectors_taints_and_preferences() {
    let bench = Bench::alone(4).await;
    bench.server.edit("Node", "", "a", |node| node["spec"]["unschedulable"] = true.into()).unwrap();
    let taints = json!([{ "key": "cards", "value": "only", "effect": "NoSchedule" }]);
    bench.server.edit("Node", "", "b", |node| node["spec"]["taints"] = taints).unwrap();
    let mut picky = pod("picky", &Value::Null);
    picky["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "nowhere" });
    bench.create(&picky);
    let message = "0/4 nodes are available: 1 node(s) had untolerated taint {cards: only}, 1 node(s) were unschedulable, \
                   2 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(bench.refused("picky").await.1, message);
    let mut tolerant = pod("tolerant", &Value::Null);
    tolerant["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "b" });
    tolerant["spec"]["tolerations"] = json!([{ "key": "cards", "operator": "Exists" }]);
    bench.create(&tolerant);
    assert_eq!(bench.bound("tolerant").await, "b");
    let name = json!({ "key": "metadata.name", "operator": "In", "values": ["d"] });
    let hint = json!([{ "weight": 100, "preference": { "matchFields": [name] } }]);
    for number in 0..3 {
        let mut hinted = pod(&format!("hinted-{number}"), &json!({ "cpu": "1" }));
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        hinted["spec"]["affinity"] = json!({ "nodeAffinity": { preferred: hint } });
        bench.create(&hinted);
        assert_eq!(bench.bound(&format!("hinted-{number}")).await, "d");
    }
}
