//! Events and access reviews.

use serde_json::{Value, json};

use crate::server::{Bench, pod, refusal};

/// An event as kube's recorder writes it.
fn event(bench: &Bench, name: &str, uid: &Value, note: &str) -> Value {
    let regarding = json!({ "apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": bench.namespace, "uid": uid });
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": name }, "type": "Warning",
        "eventTime": "2026-01-02T03:04:05.000006Z", "reason": "Refused", "action": "Allocate", "note": note,
        "regarding": regarding, "reportingController": "divvy.dev/node", "reportingInstance": "node-x",
    })
}

pub(crate) async fn event_is_found_by_its_object(bench: &Bench) {
    let uid = bench.create(&bench.core("pods"), &pod("a")).await["metadata"]["uid"].clone();
    let events = bench.group("events.k8s.io/v1", "events");
    let created = bench.create(&events, &event(bench, "a.1", &uid, "no GPU fits")).await;
    assert_eq!(created["eventTime"], "2026-01-02T03:04:05.000006Z");
    let selector = "fieldSelector=involvedObject.name%3Da,involvedObject.kind%3DPod,reason%3DRefused";
    let list = bench.get(&format!("{}?{selector}", bench.core("events"))).await;
    let [found] = &list["items"].as_array().unwrap()[..] else { panic!("not one event: {list}") };
    assert_eq!((&found["message"], &found["type"]), (&json!("no GPU fits"), &json!("Warning")));
    assert_eq!((&found["involvedObject"]["uid"], &found["reportingComponent"]), (&uid, &json!("divvy.dev/node")));
    let series = json!({ "series": { "count": 2, "lastObservedTime": "2026-01-02T03:05:05.000006Z" } });
    let (code, patched) = bench.patch("merge-patch+json", &format!("{events}/a.1"), &series).await;
    assert_eq!((code, &patched["series"]["count"]), (200, &json!(2)));
}

pub(crate) async fn event_with_a_long_note_is_invalid(bench: &Bench) {
    let uid = bench.create(&bench.core("pods"), &pod("a")).await["metadata"]["uid"].clone();
    let events = bench.group("events.k8s.io/v1", "events");
    bench.create(&events, &event(bench, "a.1", &uid, &"x".repeat(1024))).await;
    let answer = bench.post(&events, &event(bench, "a.2", &uid, &"x".repeat(1025))).await;
    let (code, reason, message) = refusal(&answer);
    assert_eq!((code, reason), (422, "Invalid"));
    assert!(message.contains("can have at most 1024 characters"), "{message}");
}

pub(crate) async fn access_reviews_are_answered(bench: &Bench) {
    let group = "/apis/authorization.k8s.io/v1";
    let attributes = json!({ "verb": "list", "group": "divvy.dev", "resource": "gpunodes" });
    let review = |user: &str| {
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": user, "resourceAttributes": attributes },
        })
    };
    let path = format!("{group}/subjectaccessreviews");
    assert_eq!(bench.create(&path, &review("nobody")).await["status"]["allowed"], false);
    let permission = json!({ "apiGroups": ["divvy.dev"], "resources": ["gpunodes"], "verbs": ["list"] });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let named = |kind: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": bench.namespace },
        })
    };
    let mut role = named("ClusterRole");
    role["rules"] = json!([permission]);
    bench.create(&format!("{rbac}/clusterroles"), &role).await;
    let mut binding = named("ClusterRoleBinding");
    binding["roleRef"] =
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": bench.namespace });
    binding["subjects"] = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody" }]);
    bench.create(&format!("{rbac}/clusterrolebindings"), &binding).await;
    bench
        .until("right", async |bench| {
            let review = bench.create(&path, &review("somebody")).await;
            (review["status"]["allowed"] == true).then_some(())
        })
        .await;
    let token =
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": "made-up" } });
    let review = bench.create("/apis/authentication.k8s.io/v1/tokenreviews", &token).await;
    assert!(review["status"]["authenticated"].as_bool().is_none_or(|yes| !yes), "{review}");
}
