//! Server-side apply, and custom resources.

use divvy_api::gpunode::GpuNode;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::server::{Answer, Bench, assert_lacks_version, config_map, refusal};

pub(crate) const GPU_NODES: &str = "/apis/divvy.dev/v1alpha1/gpunodes";

async fn apply(bench: &Bench, path: &str, manager: &str, force: bool, object: &Value) -> Answer {
    let force = if force { "&force=true" } else { "" };
    bench.patch("apply-patch+yaml", &format!("{path}?fieldManager={manager}{force}"), object).await
}

/// Manager and operation of each entry of `managedFields`.
fn managers(object: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
    let mut managers: Vec<_> = entries.map(|entry| (text(&entry["manager"]), text(&entry["operation"]))).collect();
    managers.sort();
    managers
}

fn slice(address: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": "extender", "labels": { "kubernetes.io/service-name": "extender" } },
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": 8443, "protocol": "TCP" }],
    })
}

fn gpu_node(name: &str) -> Value {
    json!({ "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": { "name": name }, "spec": {} })
}

/// Installs the definition of `GpuNode` where it isn't, and waits until it is served.
pub(crate) async fn gpu_nodes(bench: &Bench) {
    let definition = serde_json::to_value(GpuNode::crd()).unwrap();
    let (code, body) = bench.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    assert!(matches!(code, 201 | 409), "{body}");
    bench
        .until("GpuNodes", async |bench| {
            let (code, _) = bench.post(&format!("{GPU_NODES}?dryRun=All"), &gpu_node("dry")).await;
            (code == 201).then_some(())
        })
        .await;
}

pub(crate) async fn forced_apply_takes_an_endpoint_slice_over(bench: &Bench) {
    let path = format!("{}/extender", bench.group("discovery.k8s.io/v1", "endpointslices"));
    let (code, first) = apply(bench, &path, "one", true, &slice("10.0.0.1")).await;
    assert_eq!(code, 201, "{first}");
    let (code, second) = apply(bench, &path, "two", true, &slice("10.0.0.2")).await;
    assert_eq!(code, 200, "{second}");
    assert_eq!(second["endpoints"][0]["addresses"], json!(["10.0.0.2"]));
    assert_eq!(second["metadata"]["generation"], 2);
    let apply = |manager: &str| (manager.to_owned(), "Apply".to_owned());
    assert_eq!(managers(&second), [apply("one"), apply("two")]);
}

pub(crate) async fn apply_conflicts_with_the_fields_owner(bench: &Bench) {
    let path = format!("{}/a", bench.core("configmaps"));
    assert_eq!(apply(bench, &path, "one", false, &config_map("a", &json!({ "x": "1", "y": "1" }))).await.0, 201);
    let answer = apply(bench, &path, "two", false, &config_map("a", &json!({ "x": "2" }))).await;
    let message = "Apply failed with 1 conflict: conflict with \"one\": .data.x";
    assert_eq!(refusal(&answer), (409, "Conflict", message));
    assert_eq!(answer.1["details"]["causes"][0]["reason"], "FieldManagerConflict");
    // Who applies less gives up what it had.
    let (_, left) = apply(bench, &path, "one", false, &config_map("a", &json!({ "y": "1" }))).await;
    assert_eq!(left["data"], json!({ "y": "1" }));
    let (_, unnamed) = bench.patch("apply-patch+yaml", &path, &config_map("a", &json!({}))).await;
    assert!(unnamed["message"].as_str().unwrap().contains("fieldManager: Required value: is required for apply patch"));
}

pub(crate) async fn equal_apply_is_no_write(bench: &Bench) {
    let path = format!("{}/extender", bench.group("discovery.k8s.io/v1", "endpointslices"));
    let (_, first) = apply(bench, &path, "one", true, &slice("10.0.0.1")).await;
    let (_, second) = apply(bench, &path, "one", true, &slice("10.0.0.1")).await;
    assert_eq!(first, second);
}

pub(crate) async fn endpoint_slice_with_a_loopback_address_is_invalid(bench: &Bench) {
    let path = format!("{}/extender", bench.group("discovery.k8s.io/v1", "endpointslices"));
    let (code, answer) = apply(bench, &path, "one", true, &slice("127.0.0.1")).await;
    assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")), "{answer}");
    let message = answer["message"].as_str().unwrap();
    let fault = "endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)";
    assert!(message.contains(fault), "{message}");
}

pub(crate) async fn gpu_node_definition_is_served_once_established(bench: &Bench) {
    gpu_nodes(bench).await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpunodes.divvy.dev";
    let definition = bench.get(path).await;
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    let established = conditions.iter().find(|condition| condition["type"] == "Established").unwrap();
    assert_eq!(established["status"], "True");
    assert_eq!(definition["status"]["acceptedNames"]["plural"], "gpunodes");
}

pub(crate) async fn gpu_node_status_is_applied_and_pruned(bench: &Bench) {
    gpu_nodes(bench).await;
    let name = &bench.namespace;
    let created = bench.create(GPU_NODES, &gpu_node(name)).await;
    assert_eq!(created["metadata"]["generation"], 1);
    let path = format!("{GPU_NODES}/{name}/status");
    let status = json!({ "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "status": { "ledgerRevision": 7 } });
    let (code, written) = apply(bench, &path, "divvy-node", true, &status).await;
    assert_eq!(code, 200, "{written}");
    assert_eq!(
        (&written["status"]["ledgerRevision"], &written["status"]["cards"]),
        (&json!(7), &json!([])),
        "by default"
    );
    assert_eq!(written["metadata"]["generation"], 1);
    let answer = bench.put(&format!("{GPU_NODES}/{name}"), &gpu_node(name)).await;
    assert_lacks_version(&answer, &format!("gpunodes.divvy.dev \"{name}\""));
    let (_, again) = apply(bench, &path, "divvy-node", true, &status).await;
    assert_eq!(again["metadata"]["resourceVersion"], written["metadata"]["resourceVersion"]);
    let change = json!({ "status": { "ledgerRevision": 8, "unknown": "x" } });
    let (_, merged) = bench.patch("merge-patch+json", &path, &change).await;
    assert_eq!(merged["status"]["ledgerRevision"], 8);
    assert!(merged["status"]["unknown"].is_null(), "what the schema doesn't name is dropped");
}

pub(crate) async fn apply_of_an_undeclared_field_fails(bench: &Bench) {
    gpu_nodes(bench).await;
    let name = &bench.namespace;
    bench.create(GPU_NODES, &gpu_node(name)).await;
    let status = json!({ "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "status": { "unknown": "x" } });
    let (code, answer) = apply(bench, &format!("{GPU_NODES}/{name}/status"), "divvy-node", true, &status).await;
    let message = answer["message"].as_str().unwrap();
    assert_eq!(code, 500, "{answer}");
    assert!(message.ends_with(".status.unknown: field not declared in schema"), "{message}");
}

pub(crate) async fn apply_to_the_status_of_nothing_is_not_found(bench: &Bench) {
    gpu_nodes(bench).await;
    let status = json!({ "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "status": { "ledgerRevision": 7 } });
    let answer = apply(bench, &format!("{GPU_NODES}/nobody/status"), "divvy-node", true, &status).await;
    assert_eq!(refusal(&answer), (404, "NotFound", "gpunodes.divvy.dev \"nobody\" not found"));
}
