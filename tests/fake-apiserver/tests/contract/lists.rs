//! Lists, watches and their versions.

use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Bench, config_map, pod};

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Type and name of each event.
fn lines<'a>(events: &'a [Value]) -> Vec<(&'a str, &'a str)> {
    let name = |event: &'a Value| event["object"]["metadata"]["name"].as_str().unwrap_or_default();
    events.iter().map(|event| (event["type"].as_str().unwrap(), name(event))).collect()
}

pub(crate) async fn list_version_continues_as_a_watch(bench: &Bench) {
    let maps = bench.core("configmaps");
    bench.create(&maps, &config_map("a", &json!({}))).await;
    let list = version(&bench.get(&maps).await);
    let created = bench.create(&maps, &config_map("b", &json!({}))).await;
    let (_, changed) = bench.patch("merge-patch+json", &format!("{maps}/a"), &json!({ "data": { "x": "1" } })).await;
    let events = bench.watched(&maps, &format!("resourceVersion={list}"), 1).await;
    assert_eq!(lines(&events), [("ADDED", "b"), ("MODIFIED", "a")]);
    assert_eq!((&events[0]["object"], &events[1]["object"]), (&created, &changed));
}

pub(crate) async fn watch_tells_the_end_of_an_object(bench: &Bench) {
    let maps = bench.core("configmaps");
    let created = bench.create(&maps, &config_map("a", &json!({ "x": "1" }))).await;
    assert_eq!(bench.delete(&format!("{maps}/a"), &Value::Null).await.0, 200);
    let events = bench.watched(&maps, &format!("resourceVersion={}", version(&created)), 1).await;
    assert_eq!(lines(&events), [("DELETED", "a")]);
    assert_eq!(events[0]["object"]["data"]["x"], "1", "its last state");
    assert_ne!(version(&events[0]["object"]), version(&created), "the version of the deletion");
}

/// The webhook watches the pods that haven't ended.
pub(crate) async fn watch_of_selected_objects_tells_when_they_leave(bench: &Bench) {
    let pods = bench.core("pods");
    let created = bench.create(&pods, &pod("a")).await;
    let (_, ended) =
        bench.patch("merge-patch+json", &format!("{pods}/a/status"), &json!({ "status": { "phase": "Failed" } })).await;
    let selector = "fieldSelector=status.phase!%3DFailed,status.phase!%3DSucceeded";
    let events = bench.watched(&pods, &format!("{selector}&resourceVersion={}", version(&created)), 1).await;
    assert_eq!(lines(&events), [("DELETED", "a")]);
    assert_eq!(events[0]["object"]["status"]["phase"], "Pending", "as it was when it was selected");
    assert_eq!(version(&events[0]["object"]), version(&ended));
    let left = bench.get(&format!("{pods}?{selector}")).await;
    assert_eq!(left["items"], json!([]));
}

pub(crate) async fn watch_of_one_name_starts_with_it(bench: &Bench) {
    let maps = bench.core("configmaps");
    for name in ["a", "b"] {
        bench.create(&maps, &config_map(name, &json!({}))).await;
    }
    let list = bench.get(&format!("{maps}?fieldSelector=metadata.name%3Da")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let events = bench.watched(&maps, "fieldSelector=metadata.name%3Da&resourceVersion=0", 1).await;
    assert_eq!(lines(&events), [("ADDED", "a")]);
}

pub(crate) async fn watch_from_an_old_version_expires(bench: &Bench) {
    // A server keeps changes of a kind for as long as it serves it.
    crate::apply::gpu_nodes(bench).await;
    bench.expire();
    let events = bench.watched(crate::apply::GPU_NODES, "resourceVersion=1", 1).await;
    let [event] = &events[..] else { panic!("not one event: {events:?}") };
    assert_eq!(event["type"], "ERROR");
    let status = &event["object"];
    assert_eq!(
        (&status["kind"], &status["code"], &status["reason"]),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    assert!(status["message"].as_str().unwrap().starts_with("too old resource version: 1 ("), "{status}");
}

pub(crate) async fn watch_that_wants_bookmarks_gets_one(bench: &Bench) {
    let maps = bench.core("configmaps");
    let list = version(&bench.get(&maps).await);
    let query = format!("allowWatchBookmarks=true&resourceVersion={list}");
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let map = config_map(&bench.namespace, &json!({}));
        bench.create("/api/v1/namespaces/default/configmaps", &map).await
    };
    let (events, elsewhere) = tokio::join!(bench.watched(&maps, &query, 5), meanwhile);
    assert!(events.iter().all(|event| event["type"] == "BOOKMARK"), "{events:?}");
    let bookmark = events.last().expect("a bookmark");
    let mark = &bookmark["object"];
    assert_eq!((&mark["kind"], &mark["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert_eq!(version(mark), version(&elsewhere), "of a change that the watch doesn't show");
}

pub(crate) async fn pages_of_a_list_are_consistent(bench: &Bench) {
    let maps = bench.core("configmaps");
    for name in ["a", "b", "c"] {
        bench.create(&maps, &config_map(name, &json!({}))).await;
    }
    let first = bench.get(&format!("{maps}?limit=2")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap();
    // What comes meanwhile isn't on the next page.
    bench.create(&maps, &config_map("d", &json!({}))).await;
    let second = bench.get(&format!("{maps}?limit=2&continue={token}")).await;
    let names = |list: &Value| -> Vec<String> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!((names(&first), names(&second)), (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]));
    assert_eq!(version(&first), version(&second));
    assert!(second["metadata"]["continue"].is_null());
}

pub(crate) async fn list_items_do_not_name_their_kind(bench: &Bench) {
    let maps = bench.core("configmaps");
    bench.create(&maps, &config_map("a", &json!({}))).await;
    let list = bench.get(&maps).await;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert!(list["items"][0]["kind"].is_null() && list["items"][0]["apiVersion"].is_null());
}
