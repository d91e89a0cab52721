//! Taints that lead pods without GPUs away from free GPUs.

use divvy_index::fixture;
use serde_json::{Value, json};

use crate::bench::{Bench, pod};
use crate::within;

fn soft(key: &str) -> Value {
    json!({ "key": key, "effect": "PreferNoSchedule" })
}

fn foreign(effect: &str) -> Value {
    json!({ "key": "nvidia.com/gpu", "value": "present", "effect": effect })
}

fn taint(bench: &Bench, node: &str, taints: &[Value]) {
    bench.server.edit("Node", "", node, |object| object["spec"] = json!({ "taints": taints })).unwrap();
}

/// A pod gets all of the node's one card.
fn fill(bench: &Bench, node: &str) {
    let share = fixture::share(&fixture::node(node, 1), "held", 0, 40, 100);
    bench.report(node, |status| status["shares"] = json!([share]));
}

async fn has(bench: &Bench, node: &str, taints: &[Value]) {
    let has = bench.server.wait_for(|view| {
        let present = view.get("Node", "", node)?["spec"]["taints"].as_array().cloned().unwrap_or_default();
        (present == taints).then_some(())
    });
    within(&format!("{node} with taints {taints:?}"), has).await;
}

fn writes(bench: &Bench) -> [usize; 3] {
    ["free", "guarded", "full"].map(|node| bench.asked("patch", &format!("/nodes/{node}")))
}

#[tokio::test]
async fn nodes_with_free_gpus_are_tainted_beside_the_taints_of_others() {
    let bench = Bench::with_nodes(&[("free", 1), ("guarded", 1), ("full", 1)]).await;
    let free = soft("divvy.dev/free-gpus");
    taint(&bench, "free", &[foreign("PreferNoSchedule")]);
    taint(&bench, "guarded", &[free.clone(), foreign("NoSchedule"), soft("divvy.dev/cpu-for-gpus")]);
    fill(&bench, "full");
    let _replicas = bench.pair(&json!({})).await;
    has(&bench, "free", &[foreign("PreferNoSchedule"), free.clone()]).await;
    has(&bench, "guarded", &[foreign("NoSchedule")]).await;
    has(&bench, "full", &[]).await;
    let tolerations = bench.pod(&pod("train", 8, 0)).await["spec"]["tolerations"].clone();
    let keys = ["divvy.dev/free-gpus", "divvy.dev/cpu-for-gpus"];
    let tolerated = keys.map(|key| json!({ "key": key, "operator": "Exists", "effect": "PreferNoSchedule" }));
    assert_eq!(tolerations, json!(tolerated));
    fill(&bench, "free");
    // Not before half a minute has passed since the last write.
    has(&bench, "free", &[foreign("PreferNoSchedule")]).await;
    assert_eq!(writes(&bench), [2, 1, 0]);
}

#[tokio::test]
async fn soft_taints_that_are_switched_off_are_removed() {
    let bench = Bench::with_nodes(&[("free", 1)]).await;
    taint(&bench, "free", &[soft("divvy.dev/free-gpus"), foreign("PreferNoSchedule")]);
    let _replica = bench.alone(&json!({ "softTaints": "off" })).await;
    has(&bench, "free", &[foreign("PreferNoSchedule")]).await;
    assert_eq!(bench.pod(&pod("train", 8, 0)).await["spec"]["tolerations"], Value::Null);
}
