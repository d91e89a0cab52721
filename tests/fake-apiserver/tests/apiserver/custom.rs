//! Custom resources, and kinds that are shown in two versions.

use divvy_api::gpunode::{GpuNode, GpuNodeSpec, GpuNodeStatus};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_crd_established;
use kube::{Api, CustomResourceExt as _, Error, ResourceExt as _};
use serde_json::json;

use crate::Bench;

const NODES: &str = "/apis/divvy.dev/v1alpha1/gpunodes";

impl Bench {
    async fn with_gpu_nodes() -> Self {
        let bench = Self::new().await;
        let definitions = Api::<CustomResourceDefinition>::all(bench.client.clone());
        definitions.create(&PostParams::default(), &GpuNode::crd()).await.unwrap();
        let established = kube::runtime::wait::await_condition(definitions, "gpunodes.divvy.dev", is_crd_established());
        established.await.unwrap();
        bench
    }
}

#[tokio::test]
async fn definition_is_served_from_creation_to_deletion() {
    let bench = Bench::with_gpu_nodes().await;
    let group = bench.get("/apis/divvy.dev/v1alpha1").await;
    let names: Vec<_> = group["resources"].as_array().unwrap().iter().map(|own| &own["name"]).collect();
    assert_eq!(names, ["gpunodes", "gpunodes/status"]);
    let nodes = Api::<GpuNode>::all(bench.client.clone());
    nodes.create(&PostParams::default(), &GpuNode::new("node-1", GpuNodeSpec::default())).await.unwrap();
    bench.server.delete("CustomResourceDefinition", "", "gpunodes.divvy.dev", None).unwrap();
    assert!(matches!(nodes.list(&ListParams::default()).await, Err(Error::Api(status)) if status.code == 404));
    assert!(bench.server.list("GpuNode").is_empty());
    let groups = bench.get("/apis").await;
    assert!(!groups.to_string().contains("divvy.dev"));
}

#[tokio::test]
async fn a_status_is_its_own_and_takes_no_metadata_along() {
    let bench = Bench::with_gpu_nodes().await;
    let nodes = Api::<GpuNode>::all(bench.client.clone());
    let mut node = GpuNode::new("node-1", GpuNodeSpec::default());
    node.status = Some(GpuNodeStatus { ledger_revision: 1, ..GpuNodeStatus::default() });
    let made = nodes.create(&PostParams::default(), &node).await.unwrap();
    assert!(made.status.is_none(), "a status can't be created");
    let status = json!({
        "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": { "labels": { "x": "y" } },
        "status": { "ledgerRevision": 7, "conditions": [], "summary": { "cards": "8/8" } },
    });
    let params = PatchParams::apply("divvy-node").force();
    let written = nodes.patch_status("node-1", &params, &Patch::Apply(status)).await.unwrap();
    assert_eq!(written.status.as_ref().unwrap().ledger_revision, 7);
    assert!(written.labels().is_empty());
    assert_eq!(written.metadata.generation, Some(1));
    let labels = json!({ "metadata": { "labels": { "x": "y" } }, "status": null });
    let merged = nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    assert_eq!((merged.labels()["x"].as_str(), merged.status.as_ref().unwrap().ledger_revision), ("y", 7));
    let mut bare = made;
    bare.metadata.resource_version = None;
    let Err(Error::Api(refused)) = nodes.replace("node-1", &PostParams::default(), &bare).await else {
        panic!("replaced")
    };
    let wanted = "gpunodes.divvy.dev \"node-1\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!((refused.code, refused.message.as_str()), (422, wanted));
    let strategic = bench.patch("strategic-merge-patch+json", &format!("{NODES}/node-1"), &json!({})).await;
    assert_eq!(strategic.0.as_u16(), 415);
}

#[tokio::test]
async fn events_of_both_apis_are_the_same_objects() {
    let bench = Bench::new().await;
    let event = json!({
        "metadata": { "name": "a" }, "regarding": { "kind": "Pod", "name": "p" }, "reason": "Refused", "note": "no card",
        "type": "Warning", "action": "Allocate", "reportingController": "divvy-node", "reportingInstance": "node-1",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let (code, made) = bench.post(path, &event).await;
    assert_eq!(
        (code.as_u16(), &made["note"], &made["apiVersion"]),
        (201, &json!("no card"), &json!("events.k8s.io/v1"))
    );
    let (older, selected) =
        ("/api/v1/namespaces/default/events", "fieldSelector=involvedObject.name%3Dp,reason%3DRefused");
    let listed = bench.get(&format!("{older}?{selected}")).await;
    let [shown] = listed["items"].as_array().unwrap().as_slice() else { panic!("{listed:#}") };
    assert_eq!((&shown["message"], &shown["reportingComponent"]), (&json!("no card"), &json!("divvy-node")));
    let repeated = json!({ "series": { "count": 2 }, "note": "still no card" });
    bench.patch("merge-patch+json", &format!("{path}/a"), &repeated).await;
    assert_eq!(bench.get(&format!("{older}/a")).await["message"], "still no card");
}
