//! Creating, replacing, patching and deleting.

use serde_json::{Value, json};

use crate::server::{Bench, assert_lacks_version, config_map, pod, refusal};

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

fn lease(holder: &str) -> Value {
    let spec =
        json!({ "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z" });
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "a" }, "spec": spec })
}

pub(crate) async fn second_create_already_exists(bench: &Bench) {
    let maps = bench.core("configmaps");
    bench.create(&maps, &config_map("a", &json!({}))).await;
    let second = bench.post(&maps, &config_map("a", &json!({}))).await;
    assert_eq!(refusal(&second), (409, "AlreadyExists", "configmaps \"a\" already exists"));
}

pub(crate) async fn absent_object_is_not_found(bench: &Bench) {
    let path = format!("{}/a", bench.core("configmaps"));
    let expected = (404, "NotFound", "configmaps \"a\" not found");
    assert_eq!(refusal(&bench.ask("GET", &path, "", &Value::Null).await), expected);
    assert_eq!(refusal(&bench.patch("merge-patch+json", &path, &json!({})).await), expected);
    assert_eq!(refusal(&bench.delete(&path, &Value::Null).await), expected);
}

pub(crate) async fn replace_of_an_old_version_conflicts(bench: &Bench) {
    let path = format!("{}/a", bench.core("configmaps"));
    let old = bench.create(&bench.core("configmaps"), &config_map("a", &json!({ "x": "1" }))).await;
    let mut new = old.clone();
    new["data"]["x"] = json!("2");
    assert_eq!(bench.put(&path, &new).await.0, 200);
    let message = format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}");
    assert_eq!(refusal(&bench.put(&path, &old).await), (409, "Conflict", &*message));
    // Without a version it is a plain overwrite.
    assert_eq!(bench.put(&path, &config_map("a", &json!({ "x": "3" }))).await.0, 200);
}

pub(crate) async fn lease_is_replaced_with_its_version_alone(bench: &Bench) {
    let leases = bench.group("coordination.k8s.io/v1", "leases");
    let mut ours = bench.create(&leases, &lease("us")).await;
    assert_eq!(ours["spec"]["renewTime"], "2026-01-02T03:04:05.000006Z");
    let path = format!("{leases}/a");
    let answer = bench.put(&path, &lease("they")).await;
    assert_lacks_version(&answer, "leases.coordination.k8s.io \"a\"");
    ours["spec"]["holderIdentity"] = json!("");
    let (code, released) = bench.put(&path, &ours).await;
    assert_eq!(code, 200);
    assert!(released["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty), "{released}");
    assert_eq!(bench.put(&path, &ours).await.0, 409);
}

pub(crate) async fn uid_of_an_object_cannot_change(bench: &Bench) {
    let created = bench.create(&bench.core("pods"), &pod("a")).await;
    let change = json!({ "metadata": { "uid": "another", "annotations": { "x": "1" } } });
    let path = format!("{}/a/status", bench.core("pods"));
    let answer = bench.patch("merge-patch+json", &path, &change).await;
    let message = "Pod \"a\" is invalid: metadata.uid: Invalid value: \"another\": field is immutable";
    assert_eq!(refusal(&answer), (422, "Invalid", message));
    let mut other = created.clone();
    other["metadata"]["uid"] = json!("another");
    let answer = bench.put(&bench.core("pods/a"), &other).await;
    let (code, reason, message) = refusal(&answer);
    assert_eq!((code, reason), (409, "Conflict"));
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let ends = format!("Precondition failed: UID in precondition: another, UID in object meta: {uid}");
    assert!(message.ends_with(&ends), "{message}");
}

pub(crate) async fn pod_status_patch_writes_annotations_but_no_spec(bench: &Bench) {
    let created = bench.create(&bench.core("pods"), &pod("a")).await;
    let change = json!({
        "metadata": { "uid": created["metadata"]["uid"], "annotations": { "divvy.dev/cards": "{}" }, "labels": { "l": "1" } },
        "spec": { "activeDeadlineSeconds": 5 },
        "status": { "message": "m" },
    });
    let (code, patched) = bench.patch("merge-patch+json", &format!("{}/a/status", bench.core("pods")), &change).await;
    assert_eq!(code, 200, "{patched}");
    assert_eq!(patched["metadata"]["annotations"], json!({ "own": "1", "divvy.dev/cards": "{}" }));
    assert_eq!((&patched["metadata"]["labels"]["l"], &patched["status"]["message"]), (&json!("1"), &json!("m")));
    assert!(patched["spec"]["activeDeadlineSeconds"].is_null());
    assert_eq!(patched["metadata"]["generation"], created["metadata"]["generation"]);
}

pub(crate) async fn node_status_patch_writes_amounts_and_labels(bench: &Bench) {
    let name = &bench.namespace;
    bench.create("/api/v1/nodes", &json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })).await;
    let path = format!("/api/v1/nodes/{name}/status");
    let amounts = json!({ "nvidia.com/gpumem": "80000", "nvidia.com/gpucores": "100" });
    let change = json!({
        "metadata": { "labels": { "l": "1" }, "annotations": { "divvy.dev/generation": "7" } },
        "spec": { "unschedulable": true },
        "status": { "capacity": amounts, "allocatable": amounts },
    });
    let (code, patched) = bench.patch("merge-patch+json", &path, &change).await;
    assert_eq!(code, 200, "{patched}");
    assert_eq!(patched["metadata"]["labels"]["l"], "1");
    assert_eq!(patched["metadata"]["annotations"]["divvy.dev/generation"], "7");
    assert!(patched["spec"]["unschedulable"].is_null());
    assert_eq!(patched["status"]["capacity"], json!({ "nvidia.com/gpumem": "80k", "nvidia.com/gpucores": "100" }));
    let change = json!({ "status": { "capacity": { "nvidia.com/gpumem": null }, "allocatable": { "nvidia.com/gpumem": null } } });
    let (_, patched) = bench.patch("merge-patch+json", &path, &change).await;
    assert_eq!(patched["status"]["capacity"], json!({ "nvidia.com/gpucores": "100" }));
}

pub(crate) async fn json_patch_fails_with_its_test(bench: &Bench) {
    bench.create(&bench.core("configmaps"), &config_map("a", &json!({ "x": "1" }))).await;
    let path = format!("{}/a", bench.core("configmaps"));
    let change = json!([
        { "op": "test", "path": "/data/x", "value": "1" },
        { "op": "add", "path": "/data/x", "value": "2" },
        { "op": "add", "path": "/data/y", "value": "3" },
    ]);
    let (_, patched) = bench.patch("json-patch+json", &path, &change).await;
    assert_eq!(patched["data"], json!({ "x": "2", "y": "3" }));
    let answer = bench.patch("json-patch+json", &path, &change).await;
    let message = "the server rejected our request due to an error in our request";
    assert_eq!(refusal(&answer), (422, "Invalid", message));
}

pub(crate) async fn strategic_patch_merges_conditions_by_type(bench: &Bench) {
    bench.create(&bench.core("pods"), &pod("a")).await;
    let path = format!("{}/a/status", bench.core("pods"));
    for (kind, status) in [("A", "True"), ("B", "True"), ("A", "False")] {
        let change = json!({ "status": { "conditions": [{ "type": kind, "status": status }] } });
        assert_eq!(bench.patch("strategic-merge-patch+json", &path, &change).await.0, 200);
    }
    let pod = bench.get(&format!("{}/a", bench.core("pods"))).await;
    let mut conditions: Vec<(&str, &str)> = pod["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| (condition["type"].as_str().unwrap(), condition["status"].as_str().unwrap()))
        .collect();
    conditions.sort_unstable();
    assert_eq!(conditions, [("A", "False"), ("B", "True")]);
}

pub(crate) async fn secret_is_kept_in_base64(bench: &Bench) {
    let secrets = bench.core("secrets");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" }, "data": { "x": "eA==" },
        "stringData": { "y": "y" },
    });
    let created = bench.create(&secrets, &secret).await;
    assert_eq!((&created["data"], &created["type"]), (&json!({ "x": "eA==", "y": "eQ==" }), &json!("Opaque")));
    assert!(created["stringData"].is_null());
}

pub(crate) async fn delete_checks_its_preconditions(bench: &Bench) {
    let created = bench.create(&bench.core("configmaps"), &config_map("a", &json!({}))).await;
    let path = format!("{}/a", bench.core("configmaps"));
    let of = |uid: &Value| json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid } });
    let answer = bench.delete(&path, &of(&json!("another"))).await;
    let uid = &created["metadata"]["uid"];
    let why =
        format!("the UID in the precondition (another) does not match the UID in record ({})", uid.as_str().unwrap());
    let why = format!("{why}. The object might have been deleted and then recreated");
    let message = format!("Operation cannot be fulfilled on ConfigMap \"a\": {why}");
    assert_eq!(refusal(&answer), (409, "Conflict", &*message));
    let (code, status) = bench.delete(&path, &of(uid)).await;
    assert_eq!((code, &status["kind"], &status["status"]), (200, &json!("Status"), &json!("Success")));
    assert_eq!((&status["details"]["name"], &status["details"]["uid"]), (&json!("a"), uid));
}
