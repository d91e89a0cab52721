//! The kinds of patch that change fields without owning them.

use hyper::StatusCode;
use serde_json::json;

use crate::{Bench, config_map, pod};

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
const POD: &str = "/api/v1/namespaces/default/pods/a";

#[tokio::test]
async fn a_strategic_patch_merges_lists_by_their_keys() {
    let bench = Bench::new().await;
    let mut object = pod("a");
    let env = |name: &str, value: &str| json!({ "name": name, "value": value });
    object["spec"]["containers"] = json!([
        { "name": "main", "image": "app:1", "ports": [{ "containerPort": 80 }] },
        { "name": "side", "image": "side:1" },
    ]);
    bench.server.create(&object).unwrap();
    let patch = json!({ "spec": {
        "$setElementOrder/containers": [{ "name": "side" }, { "name": "main" }],
        "containers": [{ "name": "side", "image": "side:2" }],
    } });
    let (code, patched) = bench.patch("strategic-merge-patch+json", POD, &patch).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "an order that changes is no image that changes: {patched}");
    let patch = json!({ "spec": { "containers": [{ "name": "side", "image": "side:2" }] } });
    let (_, patched) = bench.patch("strategic-merge-patch+json", POD, &patch).await;
    assert_eq!(patched["spec"]["containers"][1]["image"], "side:2");
    assert_eq!(patched["spec"]["containers"][0]["image"], "app:1");

    let template = |containers: serde_json::Value| json!({ "spec": { "template": { "spec": containers } } });
    let mut set = template(json!({
        "containers": [{ "name": "main", "image": "app:1", "env": [env("A", "1"), env("B", "2")] }],
        "tolerations": [{ "key": "x" }],
        "volumes": [{ "name": "v", "emptyDir": {} }],
    }));
    set["metadata"] = json!({ "name": "set", "finalizers": ["divvy.dev/a"] });
    assert_eq!(bench.post(SETS, &set).await.0, StatusCode::CREATED);
    let mut patch = template(json!({
        "$setElementOrder/containers": [{ "name": "new" }, { "name": "main" }],
        "containers": [
            { "name": "main", "env": [{ "name": "A", "$patch": "delete" }, env("B", "3"), env("C", "4")] },
            { "name": "new", "image": "new:1" },
        ],
        "tolerations": [{ "key": "y" }],
        "volumes": [{ "name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": { "path": "/x" } }],
    }));
    patch["metadata"] =
        json!({ "finalizers": ["divvy.dev/b"], "$deleteFromPrimitiveList/finalizers": ["divvy.dev/a"] });
    let (_, patched) = bench.patch("strategic-merge-patch+json", &format!("{SETS}/set"), &patch).await;
    assert_eq!(patched["metadata"]["finalizers"], json!(["divvy.dev/b"]));
    assert_eq!(
        patched["spec"]["template"]["spec"],
        json!({
            "containers": [
                { "name": "new", "image": "new:1" },
                { "name": "main", "image": "app:1", "env": [env("B", "3"), env("C", "4")] },
            ],
            "tolerations": [{ "key": "y" }],
            "volumes": [{ "name": "v", "hostPath": { "path": "/x" } }],
        })
    );
}

#[tokio::test]
async fn conditions_of_a_status_merge_by_type() {
    let bench = Bench::new().await;
    bench.server.create(&crate::node("node-1")).unwrap();
    let patch = json!({ "status": {
        "conditions": [{ "type": "DivvyReady", "status": "True" }],
        "capacity": { "nvidia.com/gpumem": "655360" },
    } });
    let (_, patched) = bench.patch("strategic-merge-patch+json", "/api/v1/nodes/node-1/status", &patch).await;
    assert_eq!(patched["status"]["conditions"].as_array().unwrap().len(), 2);
    assert_eq!(patched["status"]["capacity"], json!({ "cpu": "8", "nvidia.com/gpumem": "655360" }));
}

#[tokio::test]
async fn json_and_merge_patches_change_what_they_name() {
    let bench = Bench::new().await;
    bench.server.create(&config_map("a", &json!({ "x": "1" }))).unwrap();
    let patch = json!([
        { "op": "test", "path": "/data/x", "value": "1" },
        { "op": "add", "path": "/metadata/annotations", "value": { "divvy.dev/a": "b" } },
        { "op": "replace", "path": "/data/x", "value": "2" },
    ]);
    let (_, patched) = bench.patch("json-patch+json", MAP, &patch).await;
    assert_eq!((&patched["data"]["x"], &patched["metadata"]["annotations"]["divvy.dev/a"]), (&json!("2"), &json!("b")));
    let (code, status) = bench.patch("json-patch+json", MAP, &patch).await;
    assert_eq!((code.as_u16(), status["reason"].as_str()), (422, Some("Invalid")));
    let (_, patched) = bench.patch("merge-patch+json", MAP, &json!({ "data": { "x": null, "y": "3" } })).await;
    assert_eq!(patched["data"], json!({ "y": "3" }));
    let stale = json!({ "metadata": { "resourceVersion": "1" }, "data": { "y": "4" } });
    assert_eq!(bench.patch("merge-patch+json", MAP, &stale).await.0, StatusCode::CONFLICT);
}
