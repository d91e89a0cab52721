//! Server-side apply, and who owns which fields.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Error};
use serde_json::{Value, json};

use crate::{Bench, config_map, pod};

fn owners(object: &Value) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries.iter().map(|own| (text(&own["manager"]), text(&own["operation"]), own["fieldsV1"].clone())).collect()
}

#[tokio::test]
async fn an_apply_takes_fields_of_others_only_by_force() {
    let bench = Bench::new().await;
    let maps = Api::<ConfigMap>::namespaced(bench.client.clone(), "default");
    let apply = async |manager: &str, data: Value, force: bool| {
        let params = PatchParams { force, ..PatchParams::apply(manager) };
        maps.patch("a", &params, &Patch::Apply(config_map("a", &data))).await
    };
    apply("one", json!({ "x": "1", "y": "1" }), false).await.unwrap();
    apply("two", json!({ "x": "1", "z": "1" }), false).await.unwrap();
    let Err(Error::Api(status)) = apply("two", json!({ "x": "2", "z": "1" }), false).await else { panic!("applied") };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"one\": .data.x");
    assert_eq!(status.details.as_ref().unwrap().causes[0].field, ".data.x");
    apply("two", json!({ "x": "2", "z": "1" }), true).await.unwrap();
    let data = |name: &str| json!({ "f:data": { format!("f:{name}"): {} } });
    let both = json!({ "f:data": { "f:x": {}, "f:z": {} } });
    let kept = bench.server.get("ConfigMap", "default", "a").unwrap();
    assert_eq!(
        owners(&kept),
        [("one".to_owned(), "Apply".to_owned(), data("y")), ("two".to_owned(), "Apply".to_owned(), both)]
    );
    // What a manager no longer applies goes, unless somebody else owns it too.
    apply("three", json!({ "z": "1" }), false).await.unwrap();
    let left = apply("two", json!({}), false).await.unwrap();
    assert_eq!(left.data.unwrap().into_keys().collect::<Vec<_>>(), ["y", "z"]);
    let again = apply("three", json!({ "z": "1" }), false).await.unwrap();
    assert_eq!(again.metadata.resource_version, left.metadata.resource_version, "nothing new is no write");
}

#[tokio::test]
async fn an_update_owns_what_it_changed() {
    let bench = Bench::new().await;
    let maps = Api::<ConfigMap>::namespaced(bench.client.clone(), "default");
    let applied = Patch::Apply(config_map("a", &json!({ "x": "1", "y": "1" })));
    maps.patch("a", &PatchParams::apply("one"), &applied).await.unwrap();
    let merged = Patch::Merge(json!({ "data": { "x": "2", "y": null } }));
    let params = PatchParams { field_manager: Some("editor".to_owned()), ..PatchParams::default() };
    maps.patch("a", &params, &merged).await.unwrap();
    let kept = bench.server.get("ConfigMap", "default", "a").unwrap();
    let x = json!({ "f:data": { "f:x": {} } });
    assert_eq!(owners(&kept), [("editor".to_owned(), "Update".to_owned(), x)]);
    let Err(Error::Api(status)) = maps.patch("a", &PatchParams::apply("one"), &applied).await else {
        panic!("applied")
    };
    let begins = "Apply failed with 1 conflict: conflict with \"editor\" using v1 at 2";
    assert!(status.message.starts_with(begins) && status.message.ends_with(": .data.x"), "{}", status.message);
}

#[tokio::test]
async fn items_of_lists_are_owned_one_by_one() {
    let bench = Bench::new().await;
    bench.server.create(&pod("a")).unwrap();
    let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
    let condition = |kind: &str, status: &str| {
        Patch::Apply(json!({
            "apiVersion": "v1", "kind": "Pod", "status": { "conditions": [{ "type": kind, "status": status }] },
        }))
    };
    for (manager, kind, status) in [("one", "A", "True"), ("two", "B", "True"), ("one", "A", "False")] {
        pods.patch_status("a", &PatchParams::apply(manager), &condition(kind, status)).await.unwrap();
    }
    let kept = bench.server.get("Pod", "default", "a").unwrap();
    let conditions = json!([{ "type": "A", "status": "False" }, { "type": "B", "status": "True" }]);
    assert_eq!(kept["status"]["conditions"], conditions);
    assert_eq!(kept["metadata"]["managedFields"][1]["subresource"], "status");
    let item = json!({ ".": {}, "f:status": {}, "f:type": {} });
    let fields = json!({ "f:status": { "f:conditions": { "k:{\"type\":\"A\"}": item } } });
    // Sorted by time, which is in seconds.
    assert!(owners(&kept).contains(&("one".to_owned(), "Apply".to_owned(), fields)), "{kept}");
    let Err(Error::Api(status)) = pods.patch_status("a", &PatchParams::apply("two"), &condition("A", "True")).await
    else {
        panic!("applied")
    };
    let conflict = "Apply failed with 1 conflict: conflict with \"one\" with subresource \"status\": \
                    .status.conditions[type=\"A\"].status";
    assert_eq!(status.message, conflict);
    let nothing = Patch::Apply(json!({ "apiVersion": "v1", "kind": "Pod" }));
    let left = pods.patch_status("a", &PatchParams::apply("one"), &nothing).await.unwrap();
    let left: Vec<_> = left.status.unwrap().conditions.unwrap().into_iter().map(|condition| condition.type_).collect();
    assert_eq!(left, ["B"]);
}
