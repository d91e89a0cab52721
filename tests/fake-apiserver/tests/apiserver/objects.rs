//! What happens to any object: names, versions, deletion, lists.

use hyper::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

use crate::{Bench, config_map, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_new_object_gets_a_name_an_identity_and_a_version() {
    let bench = Bench::new().await;
    let object = json!({ "metadata": { "generateName": "map-" } });
    let (code, made) = bench.post(MAPS, &object).await;
    assert_eq!(code, StatusCode::CREATED);
    let metadata = &made["metadata"];
    let name = metadata["name"].as_str().unwrap();
    assert!(name.starts_with("map-") && name.len() == 9, "{name}");
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!((&made["kind"], &metadata["namespace"]), (&json!("ConfigMap"), &json!("default")));
    assert_eq!(bench.get(&format!("{MAPS}/{name}")).await, made);
    let (_, made) = bench.post("/api/v1/namespaces/default/pods", &pod("a")).await;
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpumem"], "80k");
    assert_eq!(made["status"], json!({ "phase": "Pending", "qosClass": "BestEffort" }));
}

#[tokio::test]
async fn an_update_of_an_older_version_is_refused() {
    let bench = Bench::new().await;
    let maps = Api::<ConfigMap>::namespaced(bench.client.clone(), "default");
    bench.server.create(&config_map("a", &json!({}))).unwrap();
    let mut mine = maps.get("a").await.unwrap();
    let mut theirs = mine.clone();
    theirs.data = Some([("x".to_owned(), "1".to_owned())].into());
    let written = maps.replace("a", &PostParams::default(), &theirs).await.unwrap();
    assert_ne!(written.metadata.resource_version, mine.metadata.resource_version);
    mine.data = Some([("x".to_owned(), "2".to_owned())].into());
    let refused = maps.replace("a", &PostParams::default(), &mine).await.unwrap_err();
    assert!(refused.to_string().contains("the object has been modified"), "{refused}");
    // Writing what is there already is no change.
    let again = maps.replace("a", &PostParams::default(), &written).await.unwrap();
    assert_eq!(again.metadata.resource_version, written.metadata.resource_version);
    mine.metadata.resource_version = None;
    maps.replace("a", &PostParams::default(), &mine).await.unwrap();
}

#[tokio::test]
async fn a_dry_run_answers_and_keeps_nothing() {
    let bench = Bench::new().await;
    let (code, made) = bench.post(&format!("{MAPS}?dryRun=All"), &config_map("a", &json!({}))).await;
    assert_eq!((code, &made["metadata"]["name"]), (StatusCode::CREATED, &json!("a")));
    assert_eq!(bench.server.get("ConfigMap", "default", "a"), None);
    bench.server.create(&config_map("a", &json!({ "x": "1" }))).unwrap();
    let patch = json!({ "data": { "x": "2" } });
    let (_, patched) = bench.patch("merge-patch+json", &format!("{MAPS}/a?dryRun=All"), &patch).await;
    assert_eq!(patched["data"]["x"], "2");
    bench.ask("DELETE", &format!("{MAPS}/a?dryRun=All"), &[], &Value::Null).await;
    assert_eq!(bench.server.get("ConfigMap", "default", "a").unwrap()["data"]["x"], "1");
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let bench = Bench::new().await;
    let mut object = config_map("a", &json!({}));
    object["metadata"]["finalizers"] = json!(["divvy.dev/a", "divvy.dev/b"]);
    bench.server.create(&object).unwrap();
    let path = format!("{MAPS}/a");
    let (code, deleting) = bench.ask("DELETE", &path, &[], &Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    assert!(deleting["metadata"]["deletionTimestamp"].is_string());
    let one = json!({ "metadata": { "finalizers": ["divvy.dev/b"] } });
    bench.patch("merge-patch+json", &path, &one).await;
    assert!(bench.server.get("ConfigMap", "default", "a").is_some());
    let none = json!({ "metadata": { "finalizers": null } });
    bench.patch("merge-patch+json", &path, &none).await;
    assert_eq!(bench.server.get("ConfigMap", "default", "a"), None);
}

#[tokio::test]
async fn what_an_owner_leaves_behind_goes_with_the_last_owner() {
    let bench = Bench::new().await;
    let owner = |name: &str| {
        let made = bench.server.create(&config_map(name, &json!({}))).unwrap();
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"] })
    };
    let (a, b) = (owner("a"), owner("b"));
    let child = |name: &str, owners: Value| {
        let mut object = config_map(name, &json!({}));
        object["metadata"]["ownerReferences"] = owners;
        bench.server.create(&object).unwrap()
    };
    let of_a = child("of-a", json!([a]));
    child("of-both", json!([a, b]));
    let uid = &of_a["metadata"]["uid"];
    child("of-of-a", json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "of-a", "uid": uid }]));
    let names = || {
        let maps = bench.server.list("ConfigMap");
        maps.iter().map(|map| map["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    bench.server.delete("ConfigMap", "default", "a", None).unwrap();
    assert_eq!(names(), ["b", "of-both"]);
    bench.server.delete("ConfigMap", "default", "b", None).unwrap();
    assert!(names().is_empty());
}

#[tokio::test]
async fn a_namespace_goes_when_it_is_empty() {
    let bench = Bench::new().await;
    bench.server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "lab" } })).unwrap();
    for mut object in [config_map("a", &json!({})), pod("a")] {
        object["metadata"]["namespace"] = "lab".into();
        bench.server.create(&object).unwrap();
    }
    bench.server.edit("Pod", "lab", "a", |pod| pod["spec"]["nodeName"] = "node-1".into()).unwrap();
    let (_, leaving) = bench.ask("DELETE", "/api/v1/namespaces/lab", &[], &Value::Null).await;
    assert_eq!(leaving["status"]["phase"], "Terminating");
    assert!(bench.server.list("ConfigMap").is_empty());
    let (code, _) = bench.post("/api/v1/namespaces/lab/configmaps", &json!({ "metadata": { "name": "b" } })).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    // The kubelet's side confirms that the pod has ended.
    bench.server.delete("Pod", "lab", "a", Some(0)).unwrap();
    assert_eq!(bench.server.get("Namespace", "", "lab"), None);
}

#[tokio::test]
async fn pages_of_a_list_show_one_instant() {
    let bench = Bench::new().await;
    for name in ["a", "b", "c", "d"] {
        bench.server.create(&config_map(name, &json!({}))).unwrap();
    }
    let maps = Api::<ConfigMap>::namespaced(bench.client.clone(), "default");
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(2));
    let token = first.metadata.continue_.unwrap();
    bench.server.delete("ConfigMap", "default", "c", None).unwrap();
    bench.server.create(&config_map("e", &json!({}))).unwrap();
    let next = maps.list(&ListParams::default().limit(5).continue_token(&token)).await.unwrap();
    let names: Vec<_> = next.items.iter().map(|map| map.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["c", "d"]);
    assert_eq!(next.metadata.resource_version, first.metadata.resource_version);
    bench.server.expire();
    let refused = maps.list(&ListParams::default().limit(5).continue_token(&token)).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
}

#[tokio::test]
async fn selectors_choose_by_labels_and_fields() {
    let bench = Bench::new().await;
    for (name, tier, node) in [("a", "gold", "node-1"), ("b", "gold", "node-2"), ("c", "", "node-1")] {
        let mut object = pod(name);
        object["spec"]["nodeName"] = node.into();
        object["metadata"]["labels"] = if tier.is_empty() { json!({}) } else { json!({ "tier": tier }) };
        bench.server.create(&object).unwrap();
    }
    for (query, names) in [
        ("labelSelector=tier%3Dgold", vec!["a", "b"]),
        ("labelSelector=!tier", vec!["c"]),
        ("labelSelector=tier%20in%20(gold,silver)&fieldSelector=spec.nodeName%3Dnode-1", vec!["a"]),
        ("fieldSelector=metadata.name!%3Db,status.phase%3DPending", vec!["a", "c"]),
    ] {
        let list = bench.get(&format!("/api/v1/pods?{query}")).await;
        let found: Vec<_> = list["items"].as_array().unwrap().iter().map(|pod| &pod["metadata"]["name"]).collect();
        assert_eq!(found, names, "{query}");
    }
    let (code, _) = bench.ask("DELETE", "/api/v1/namespaces/default/pods?labelSelector=tier", &[], &Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    let left: Vec<_> =
        bench.server.list("Pod").into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
    assert_eq!(left.len(), 1);
}
