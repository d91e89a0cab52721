use serde_json::{Value, json};

use super::*;

/// A `GpuNode` with two GPUs and the shares of two pods; one of them on a GPU that isn't reported.
fn node() -> Value {
    let share = |pod: &str, container: &str, card: &str| {
        json!({
            "podUid": format!("uid-{pod}"), "namespace": "default", "pod": pod, "container": container, "card": card,
            "memoryMi": 1024, "cores": 10,
        })
    };
    json!({
        "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode",
        "metadata": {
            "name": "n1", "uid": "uid-n1",
            "managedFields": [
                { "manager": "divvy-node", "operation": "Update", "time": "2026-03-01T10:00:00Z" },
                { "manager": "divvy-node", "operation": "Update", "time": "2026-03-01T11:00:00Z", "subresource": "status" },
            ],
        },
        "spec": {},
        "status": {
            "cards": [
                { "uuid": "GPU-b", "model": " NVIDIA A100", "memoryMi": 40960, "health": "Unhealthy" },
                { "uuid": "GPU-a", "model": "Tesla T4", "memoryMi": 15360, "health": "Healthy" },
            ],
            "shares": [share("train", "main", "GPU-a"), share("train", "side", "GPU-a"), share("train", "main", "GPU-b"), share("old", "main", "GPU-c")],
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T09:00:00Z", "reason": "Registered", "message": "" }],
        },
    })
}

fn view(node: &Value) -> NodeView {
    let report: GpuNodeReport = serde_json::from_value(node.clone()).unwrap();
    NodeView::new(&report.metadata, Some(&report).filter(|report| report.unread.is_empty()))
}

#[test]
fn report_becomes_pod_resources_and_gpu_info() {
    let NodeView { info, pods, .. } = view(&node());
    let pods: Vec<_> =
        pods.iter().map(|(key, devices)| json!([key.name.object_name(None), &*key.uid, devices])).collect();
    insta::assert_json_snapshot!(json!({ "spec": info.spec, "status": info.status, "pods": pods }));
}

#[test]
fn condition_ready_is_the_nodes_health() {
    let health = |conditions: Value| {
        let mut node = node();
        node["status"]["conditions"] = conditions;
        json!(view(&node).info.status.node_health)
    };
    let ready = |status: &str| json!([{ "type": "Ready", "status": status, "lastTransitionTime": "2026-03-01T09:00:00Z", "reason": "", "message": "" }]);
    assert_eq!(["True", "False", "Unknown"].map(|it| health(ready(it))), ["True", "False", "UnKnow"]);
    assert_eq!(health(json!([])), "UnKnow");
}

#[test]
fn unreadable_or_new_node_has_nothing() {
    let mut garbled = node();
    garbled["status"]["cards"] = json!("none");
    let mut new = node();
    new.as_object_mut().unwrap().remove("status");
    for node in [garbled, new, json!({ "metadata": { "name": "n1" } }), json!({ "metadata": {} })] {
        let NodeView { info, pods, .. } = view(&node);
        assert!(pods.is_empty() && info.spec.device_infos.is_empty());
        assert_eq!(info.status, GpuInfoStatus::default());
    }
}

#[test]
fn reports_of_no_real_node_are_too_large() {
    let excess = |change: &dyn Fn(&mut GpuNodeReport)| {
        let mut node: GpuNodeReport = serde_json::from_value(node()).unwrap();
        change(&mut node);
        NodeView::excess(&node)
    };
    assert_eq!(excess(&|_| {}), None);
    let cards = excess(&|report| report.node.cards = vec![report.node.cards[0].clone(); 1025]);
    assert_eq!(cards.as_deref(), Some("1025 GPUs: at most 1024 are served"));
    let shares = excess(&|report| report.shares = vec![report.shares[0].clone(); 4097]);
    assert_eq!(shares.as_deref(), Some("4097 shares: at most 4096 are served"));
}

#[test]
fn share_without_uid_is_passed_over() {
    let mut node = node();
    node["status"]["shares"][0]["podUid"] = "".into();
    assert_eq!(view(&node).pods.len(), 2);
    node["status"]["shares"][1]["podUid"] = "".into();
    node["status"]["shares"][2]["podUid"] = "".into();
    assert_eq!(view(&node).pods.len(), 1);
}

#[test]
fn namespace_with_a_dot_takes_no_other_pods_name() {
    let mut node = node();
    node["status"]["shares"][0]["namespace"] = "default.train".into();
    let pods = view(&node).pods;
    assert!(pods.keys().all(|key| &*key.name.namespace == "default"));
}

#[test]
fn second_pod_of_a_name_has_its_uid_in_the_name() {
    let name = PodName { namespace: "default".into(), pod: "a.b".into() };
    assert_eq!(name.object_name(None), "default.a.b");
    assert_eq!(name.object_name(Some("u")), "default.a.b:u");
}
