//! Binding, deletion and eviction of pods, and what is filled in and fixed in their specs.

use serde_json::{Value, json};

use crate::server::{Answer, Bench, pod, refusal};

/// Binds a pod as the extender does.
async fn bind(bench: &Bench, uid: &Value, node: &str) -> Answer {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": { "name": "a", "uid": uid, "annotations": { "divvy.dev/planned": "{}" } },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    bench.post(&bench.core("pods/a/binding"), &binding).await
}

/// Creates a pod and returns its UID.
async fn created(bench: &Bench) -> Value {
    bench.create(&bench.core("pods"), &pod("a")).await["metadata"]["uid"].clone()
}

pub(crate) async fn binding_sets_node_annotations_and_condition(bench: &Bench) {
    let uid = created(bench).await;
    let (code, status) = bind(bench, &uid, "node-x").await;
    assert_eq!((code, &status["kind"], &status["status"]), (201, &json!("Status"), &json!("Success")));
    let bound = bench.get(&bench.core("pods/a")).await;
    assert_eq!(bound["spec"]["nodeName"], "node-x");
    assert_eq!(bound["metadata"]["annotations"], json!({ "own": "1", "divvy.dev/planned": "{}" }));
    let condition = &bound["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("True")));
}

pub(crate) async fn binding_of_another_uid_conflicts(bench: &Bench) {
    let uid = created(bench).await;
    let answer = bind(bench, &json!("another"), "node-x").await;
    let why = format!("UID in precondition: another, UID in object meta: {}", uid.as_str().unwrap());
    let (code, reason, message) = refusal(&answer);
    assert_eq!((code, reason), (409, "Conflict"));
    let key = format!("/registry/pods/{}/a", bench.namespace);
    let storage = format!("StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg");
    assert_eq!(message, format!("Operation cannot be fulfilled on pods \"a\": {storage}: Precondition failed: {why}"));
}

pub(crate) async fn second_binding_conflicts(bench: &Bench) {
    let uid = created(bench).await;
    assert_eq!(bind(bench, &uid, "node-x").await.0, 201);
    let answer = bind(bench, &uid, "node-x").await;
    let why = "pod a is already assigned to node \"node-x\"";
    let message = format!("Operation cannot be fulfilled on pods/binding \"a\": {why}");
    assert_eq!(refusal(&answer), (409, "Conflict", &*message));
}

pub(crate) async fn unbound_pod_is_deleted_at_once(bench: &Bench) {
    created(bench).await;
    let (code, _) = bench.delete(&bench.core("pods/a"), &Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(bench.ask("GET", &bench.core("pods/a"), "", &Value::Null).await.0, 404);
}

pub(crate) async fn bound_pod_is_deleted_after_its_grace(bench: &Bench) {
    let uid = created(bench).await;
    bind(bench, &uid, "node-x").await;
    let (code, deleted) = bench.delete(&bench.core("pods/a"), &Value::Null).await;
    assert_eq!((code, &deleted["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(7)));
    let left = bench.get(&bench.core("pods/a")).await;
    assert!(left["metadata"]["deletionTimestamp"].is_string());
    let now = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": { "uid": uid } });
    assert_eq!(bench.delete(&bench.core("pods/a"), &now).await.0, 200);
    assert_eq!(bench.ask("GET", &bench.core("pods/a"), "", &Value::Null).await.0, 404);
}

pub(crate) async fn eviction_deletes_the_pod(bench: &Bench) {
    let uid = created(bench).await;
    bind(bench, &uid, "node-x").await;
    let eviction = |uid: &Value| {
        let options = json!({ "preconditions": { "uid": uid } });
        json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "a" }, "deleteOptions": options })
    };
    assert_eq!(bench.post(&bench.core("pods/a/eviction"), &eviction(&json!("another"))).await.0, 409);
    let (code, status) = bench.post(&bench.core("pods/a/eviction"), &eviction(&uid)).await;
    assert_eq!((code, &status["status"]), (201, &json!("Success")));
    assert!(bench.get(&bench.core("pods/a")).await["metadata"]["deletionTimestamp"].is_string());
}

pub(crate) async fn request_takes_the_limit(bench: &Bench) {
    created(bench).await;
    let created = bench.get(&bench.core("pods/a")).await;
    let resources = &created["spec"]["containers"][0]["resources"];
    assert_eq!(resources["requests"], json!({ "nvidia.com/gpu": "1" }));
    assert_eq!(
        (&created["status"]["phase"], &created["status"]["qosClass"]),
        (&json!("Pending"), &json!("BestEffort"))
    );
    assert_eq!(created["spec"]["schedulerName"], "default-scheduler");
}

pub(crate) async fn spec_of_a_pod_cannot_change(bench: &Bench) {
    created(bench).await;
    let change = json!({ "spec": { "nodeName": "node-x" } });
    let answer = bench.patch("merge-patch+json", &bench.core("pods/a"), &change).await;
    let (code, reason, message) = refusal(&answer);
    assert_eq!((code, reason), (422, "Invalid"));
    assert!(
        message.starts_with("Pod \"a\" is invalid: spec: Forbidden: pod updates may not change fields"),
        "{message}"
    );
}

pub(crate) async fn gates_go_one_by_one_and_never_come(bench: &Bench) {
    let mut gated = pod("a");
    gated["spec"]["schedulingGates"] = json!([{ "name": "example.com/a" }, { "name": "example.com/b" }]);
    let created = bench.create(&bench.core("pods"), &gated).await;
    let change = async |subresource: &str, change: Value| {
        let path = format!("{}{subresource}", bench.core("pods/a"));
        bench.patch("strategic-merge-patch+json", &path, &change).await
    };
    let without = |gate: &str| json!({ "schedulingGates": [{ "$patch": "delete", "name": gate }] });
    let nomination = json!({
        "metadata": { "uid": created["metadata"]["uid"] },
        "status": { "nominatedNodeName": "node-x", "conditions": [{ "type": "example.com/placed", "status": "True" }] },
    });
    let (code, nominated) = change("/status", nomination).await;
    assert_eq!((code, &nominated["status"]["nominatedNodeName"]), (200, &json!("node-x")));
    let freed = |version: &Value| {
        let metadata = json!({
            "uid": created["metadata"]["uid"], "resourceVersion": version, "annotations": { "divvy.dev/planned": "{}" },
        });
        json!({ "metadata": metadata, "spec": without("example.com/a") })
    };
    let answer = change("", freed(&created["metadata"]["resourceVersion"])).await;
    let (code, reason, message) = refusal(&answer);
    assert_eq!((code, reason), (409, "Conflict"));
    assert!(message.contains("the object has been modified"), "{message}");
    let (code, one) = change("", freed(&nominated["metadata"]["resourceVersion"])).await;
    assert_eq!((code, &one["spec"]["schedulingGates"]), (200, &json!([{ "name": "example.com/b" }])));
    assert_eq!(one["metadata"]["annotations"]["divvy.dev/planned"], "{}");
    assert_eq!(one["status"]["nominatedNodeName"], "node-x");
    let (code, none) = change("", json!({ "spec": without("example.com/b") })).await;
    assert_eq!((code, &none["spec"]["schedulingGates"]), (200, &Value::Null));
    let (code, same) = change("", json!({ "spec": without("example.com/b") })).await;
    assert_eq!((code, &same["metadata"]["resourceVersion"]), (200, &none["metadata"]["resourceVersion"]));
    let answer = change("", json!({ "spec": { "schedulingGates": [{ "name": "example.com/c" }] } })).await;
    let (code, reason, message) = refusal(&answer);
    assert_eq!((code, reason), (422, "Invalid"));
    assert!(message.contains("schedulingGates") && message.contains("example.com/c"), "{message}");
}

pub(crate) async fn ports_of_an_unbound_pod_are_not_forwarded(bench: &Bench) {
    let forward = async || bench.ask("GET", &bench.core("pods/a/portforward?ports=9404"), "", &Value::Null).await;
    assert_eq!(refusal(&forward().await), (404, "NotFound", "pods \"a\" not found"));
    created(bench).await;
    assert_eq!(refusal(&forward().await), (400, "BadRequest", "pod a does not have a host assigned"));
}
