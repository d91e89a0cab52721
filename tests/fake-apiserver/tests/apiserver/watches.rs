//! Watches: what kube-rs needs to keep a copy, whatever happens to its connection.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio_stream::StreamExt as _;

use crate::{Bench, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A reflector's copy of all ConfigMaps, and each event that it saw.
struct Copy {
    store: Store<ConfigMap>,
    events: tokio::sync::mpsc::UnboundedReceiver<String>,
}

impl Copy {
    fn of(client: &Client, config: watcher::Config) -> Self {
        let (store, writer) = reflector::store();
        let (sender, events) = tokio::sync::mpsc::unbounded_channel();
        let watch = watcher(Api::<ConfigMap>::namespaced(client.clone(), "default"), config);
        let mut stream = Box::pin(reflector::reflector(writer, watch).default_backoff());
        tokio::spawn(async move {
            while let Some(event) = stream.next().await {
                let name = |map: &ConfigMap| map.metadata.name.clone().unwrap_or_default();
                let text = match &event {
                    Ok(watcher::Event::Init) => "init".to_owned(),
                    Ok(watcher::Event::InitApply(map)) => format!("{} is there", name(map)),
                    Ok(watcher::Event::InitDone) => "ready".to_owned(),
                    Ok(watcher::Event::Apply(map)) => format!("{} written", name(map)),
                    Ok(watcher::Event::Delete(map)) => format!("{} deleted", name(map)),
                    Err(error) => format!("error: {error}"),
                };
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
        Self { store, events }
    }

    /// Waits for an event, and fails on an error unless one is awaited.
    async fn until(&mut self, wanted: &str) {
        loop {
            let event = tokio::time::timeout(Duration::from_secs(60), self.events.recv()).await;
            let event = event.unwrap_or_else(|_| panic!("waiting for {wanted:?}")).expect("the stream goes on");
            if event.starts_with(wanted) {
                return;
            }
            assert!(!event.starts_with("error"), "waiting for {wanted:?}: {event}");
        }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.store.state().iter().filter_map(|map| map.metadata.name.clone()).collect();
        names.sort();
        names
    }
}

impl Bench {
    fn add(&self, name: &str) {
        self.server.create(&config_map(name, &json!({}))).unwrap();
    }

    /// Waits until as many watches were asked for.
    async fn watches(&self, count: usize) {
        let watches = |view: &fake_apiserver::View<'_>| {
            (view.requests().iter().filter(|asked| asked.verb == "watch").count() >= count).then_some(())
        };
        self.until("watches", watches).await;
    }
}

#[tokio::test]
async fn a_reflector_goes_on_where_it_was_after_its_watch_was_dropped() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let bench = Bench::new().await;
        bench.add("a");
        let mut copy = Copy::of(&bench.client, config);
        copy.until("ready").await;
        bench.add("b");
        copy.until("b written").await;
        bench.watches(1).await;
        bench.server.drop_watches();
        bench.add("c");
        bench.server.delete("ConfigMap", "default", "a", None).unwrap();
        copy.until("a deleted").await;
        assert_eq!(copy.names(), ["b", "c"]);
        let lists = bench.server.requests().into_iter().filter(|asked| asked.verb == "list").count();
        assert!(lists <= 1, "it listed again");
    }
}

#[tokio::test]
async fn a_reflector_lists_again_when_its_version_is_too_old() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let bench = Bench::new().await;
        bench.add("a");
        let mut copy = Copy::of(&bench.client, config);
        copy.until("ready").await;
        bench.watches(1).await;
        // While nobody answers, more happens than the server remembers.
        bench.server.go_away().await;
        bench.server.delete("ConfigMap", "default", "a", None).unwrap();
        bench.add("b");
        bench.server.expire();
        bench.server.come_back().await;
        let listed_again = async {
            while copy.names() != ["b"] {
                copy.events.recv().await.expect("the stream goes on");
            }
        };
        tokio::time::timeout(Duration::from_secs(60), listed_again).await.expect("the copy comes right");
    }
}

#[tokio::test]
async fn a_watch_from_a_forgotten_version_is_told_to_start_over() {
    let bench = Bench::new().await;
    bench.add("a");
    bench.server.expire();
    let events = bench.watched(&format!("{MAPS}?resourceVersion=1")).await;
    let [error] = events.as_slice() else { panic!("{events:#?}") };
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(error["object"]["reason"], "Expired");
    assert!(error["object"]["message"].as_str().unwrap().starts_with("too old resource version: 1 ("));
}

#[tokio::test]
async fn bookmarks_say_how_far_a_watch_has_come() {
    let bench = Bench::new().await;
    bench.add("a");
    let listed = bench.get(MAPS).await["metadata"]["resourceVersion"].clone();
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events = bench.watched(&format!("{MAPS}?{query}")).await;
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ADDED", "BOOKMARK"], "one more comes once something has changed");
    let mark = &events[1]["object"];
    assert_eq!(mark["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    assert_eq!((&mark["kind"], &mark["metadata"]["resourceVersion"]), (&json!("ConfigMap"), &listed));
    let events = bench.watched(&format!("{MAPS}?resourceVersion={}", listed.as_str().unwrap())).await;
    assert!(events.is_empty(), "no bookmark unless asked for: {events:#?}");
}

#[tokio::test]
async fn a_selective_watch_sees_objects_come_and_go() {
    let bench = Bench::new().await;
    let from = bench.get(MAPS).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    bench.add("a");
    for label in ["gold", "gold", "iron"] {
        let patch = json!({ "metadata": { "labels": { "tier": label }, "annotations": { "n": bench.server.requests().len().to_string() } } });
        bench.patch("merge-patch+json", &format!("{MAPS}/a"), &patch).await;
    }
    let events = bench.watched(&format!("{MAPS}?resourceVersion={from}&labelSelector=tier%3Dgold")).await;
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED", "DELETED"]);
    let versions: Vec<u64> = events
        .iter()
        .map(|event| event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
}
