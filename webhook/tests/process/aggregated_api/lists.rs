//! Discovery, lists, single objects and refusals.

use hyper::Method;
use serde_json::json;

use super::bench::{Bench, share};
use super::client::BASE;
use crate::until;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[tokio::test]
async fn lists_and_objects_are_those_of_the_gpu_nodes() {
    let bench = Bench::new().await;
    bench.shares("n1", &[share("train", "u1", "GPU-a")]);
    let replica = bench.ready().await;
    let client = bench.client();
    let list = client.get(replica.aggregated_api, "/podresources").await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PodResourceList"), &json!("metrics.nvidia.com/v1alpha1"))
    );
    assert!(list["metadata"]["resourceVersion"].is_string());
    let item = &list["items"][0];
    assert_eq!((&item["metadata"]["name"], &item["metadata"]["uid"]), (&json!("default.train"), &json!("u1")));
    let device = &item["spec"]["containers_device"][0]["device_info"][0];
    assert_eq!(*device, json!({ "device_id": "GPU-a", "device_model": "Tesla T4", "device_node": "n1" }));
    assert_eq!(client.get(replica.aggregated_api, "/podresources/default.train").await, *item);
    let infos = client.get(replica.aggregated_api, "/gpuinfos?fieldSelector=metadata.name%3Dn1").await;
    assert_eq!(infos["items"][0]["spec"]["device_busy"], json!(["GPU-a"]));
    let none = client.get(replica.aggregated_api, "/gpuinfos?fieldSelector=metadata.name%3Dn2").await;
    assert_eq!(none["items"], json!([]));
    let (code, table) = client.ask(replica.aggregated_api, Method::GET, &format!("{BASE}/podresources"), TABLE).await;
    assert_eq!((code, &table["kind"]), (200, &json!("Table")));
    let cells = json!(["default.train", "default", "train", "n1", 1, "Tesla T4", "GPU-a"]);
    assert_eq!(table["rows"][0]["cells"], cells);
    assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), cells.as_array().unwrap().len());
}

#[tokio::test]
async fn discovery_and_schemas_are_served() {
    let bench = Bench::new().await;
    let replica = bench.ready().await;
    let client = bench.client();
    let ask = async |path: &str| client.ask(replica.aggregated_api, Method::GET, path, "application/json").await;
    for path in ["/apis", "/apis/metrics.nvidia.com", "/openapi/v2", "/openapi/v3", &format!("/openapi/v3{BASE}")] {
        assert_eq!(ask(path).await.0, 200, "{path}");
    }
    let resources = ask(BASE).await.1["resources"].clone();
    let names: Vec<_> =
        resources.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["podresources", "gpuinfos"]);
}

#[tokio::test]
async fn refusals_are_status_objects() {
    let bench = Bench::new().await;
    let replica = bench.ready().await;
    let client = bench.client();
    let long = "x".repeat(8_000);
    for (method, path, code) in [
        (Method::GET, "/podresources/default.none".to_owned(), 404),
        (Method::GET, format!("/podresources/{long}"), 404),
        (Method::GET, "/podresources/%ff%2F..%00".to_owned(), 400),
        (Method::GET, "/pods".to_owned(), 404),
        (Method::GET, "/podresources?labelSelector=a".to_owned(), 400),
        (Method::GET, "/podresources?watch=1&resourceVersion=7".to_owned(), 410),
        (Method::GET, "/podresources?resourceVersion=7".to_owned(), 410),
        (Method::GET, "/podresources?sendInitialEvents=1".to_owned(), 422),
        (Method::POST, "/podresources".to_owned(), 405),
        (Method::DELETE, "/podresources/default.none".to_owned(), 405),
    ] {
        let (answered, status) = client.ask(replica.aggregated_api, method, &format!("{BASE}{path}"), "*/*").await;
        let shown = &path[..path.len().min(60)];
        assert_eq!((answered, &status["kind"], &status["code"]), (code, &json!("Status"), &json!(code)), "{shown}");
    }
    let (code, status) =
        client.ask(replica.aggregated_api, Method::GET, &format!("{BASE}/podresources"), "application/yaml").await;
    assert_eq!((code, &status["reason"]), (406, &json!("NotAcceptable")));
}

#[tokio::test]
async fn unreadable_node_is_shown_without_gpus() {
    let bench = Bench::new().await;
    bench.report("n1", |status| status["cards"] = json!("none"));
    let replica = bench.ready().await;
    let client = bench.client();
    let info = client.get(replica.aggregated_api, "/gpuinfos/n1").await;
    assert_eq!((&info["status"]["node_health"], &info["spec"]["device_infos"]), (&json!("UnKnow"), &json!({})));
    bench.report("n1", |status| status["cards"] = json!([]));
    bench.shares("n1", &[share("train", "u1", "GPU-z")]);
    until("a GPU that isn't reported", async || {
        let list = client.get(replica.aggregated_api, "/podresources").await;
        let device = list["items"].get(0)?["spec"]["containers_device"][0]["device_info"][0].clone();
        (device["device_problem"] == "NotReported").then_some(())
    })
    .await;
}
