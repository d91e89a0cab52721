//! Watches: from now, from a version, until the end.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Method, Request};
use serde_json::{Value, json};

use super::bench::{Bench, share};
use super::client::{BASE, Client};
use crate::{until, within};

const JSON: &str = "application/json";

/// Waits until a pod is served, and gives the version of a list with it.
async fn version_with(client: &Client, to: std::net::SocketAddr, pod: &str) -> String {
    until(pod, async || {
        let list = client.get(to, "/podresources").await;
        let has = list["items"].as_array()?.iter().any(|item| item["metadata"]["name"] == pod);
        has.then(|| list["metadata"]["resourceVersion"].as_str().unwrap().to_owned())
    })
    .await
}

#[tokio::test]
async fn watch_shows_objects_changes_and_goes_on_from_a_version() {
    let bench = Bench::new().await;
    bench.shares("n1", &[share("a", "u1", "GPU-a")]);
    let replica = bench.ready().await;
    let client = bench.client();
    let mut lines = client.watch(replica.aggregated_api, "/podresources?watch=true", JSON).await;
    assert_eq!(lines.event().await, ("ADDED".to_owned(), "default.a".to_owned()));
    bench.shares("n1", &[share("a", "u1", "GPU-b"), share("b", "u2", "GPU-a")]);
    let changed = lines.next().await.unwrap();
    assert_eq!((&changed["type"], &changed["object"]["metadata"]["name"]), (&json!("MODIFIED"), &json!("default.a")));
    assert_eq!(lines.event().await, ("ADDED".to_owned(), "default.b".to_owned()));
    bench.shares("n1", &[]);
    for name in ["default.a", "default.b"] {
        assert_eq!(lines.event().await, ("DELETED".to_owned(), name.to_owned()));
    }
    let version = changed["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("/podresources?watch=1&resourceVersion={version}&fieldSelector=metadata.name%3Ddefault.b");
    let mut again = client.watch(replica.aggregated_api, &path, JSON).await;
    for what in ["ADDED", "DELETED"] {
        assert_eq!(again.event().await, (what.to_owned(), "default.b".to_owned()));
    }
}

#[tokio::test]
async fn watch_list_ends_its_beginning_with_a_bookmark() {
    let bench = Bench::new().await;
    bench.shares("n1", &[share("a", "u1", "GPU-a")]);
    let replica = bench.ready().await;
    let client = bench.client();
    let path = "/podresources?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=1&watch=true";
    let mut lines = client.watch(replica.aggregated_api, path, JSON).await;
    assert_eq!(lines.event().await, ("ADDED".to_owned(), "default.a".to_owned()));
    let mark = lines.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let last = lines.next().await.unwrap();
    assert_eq!((&last["type"], &last["object"]["metadata"]["annotations"]), (&json!("BOOKMARK"), &Value::Null));
    assert_eq!(lines.next().await, None, "timeoutSeconds are over");
}

#[tokio::test]
async fn version_of_another_replica_or_a_restart_is_gone() {
    let bench = Bench::new().await;
    bench.shares("n1", &[share("a", "u1", "GPU-a")]);
    let [first, second] = [bench.ready().await, bench.serving("divvy-webhook-b", "on").await];
    let client = bench.client();
    let version = version_with(&client, first.aggregated_api, "default.a").await;
    let path = format!("{BASE}/podresources?watch=1&resourceVersion={version}");
    let (code, status) = client.ask(second.aggregated_api, Method::GET, &path, JSON).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")), "{status}");
    client.watch(first.aggregated_api, &format!("/podresources?watch=1&resourceVersion={version}"), JSON).await;
}

#[tokio::test]
async fn kubectl_gets_tables_whose_first_has_columns() {
    let bench = Bench::new().await;
    bench.shares("n1", &[share("a", "u1", "GPU-a"), share("b", "u2", "GPU-b")]);
    let replica = bench.ready().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut lines = bench.client().watch(replica.aggregated_api, "/podresources?watch=true", table).await;
    for (name, columns) in [("default.a", 7), ("default.b", 0)] {
        let object = lines.next().await.unwrap()["object"].clone();
        assert_eq!(object["rows"][0]["cells"][0], name);
        assert_eq!(object["columnDefinitions"].as_array().unwrap().len(), columns);
    }
}

#[tokio::test]
async fn legacy_lines_are_for_plain_watches_where_switched_on() {
    let bench = Bench::new().await;
    bench.shares("n1", &[share("a", "u1", "GPU-a")]);
    let replica = bench.serving("divvy-webhook-a", "legacy-watch").await;
    let client = bench.client();
    let mut legacy = client.watch(replica.aggregated_api, "/podresources?watch=true", JSON).await;
    let synced = legacy.next().await.unwrap();
    assert_eq!((&synced["Type"], &synced["Object"]["spec"]["pod_name"]), (&json!("SYNCED"), &json!("a")));
    bench.shares("n1", &[]);
    assert_eq!(legacy.next().await.unwrap()["Type"], "DELETED");
    bench.shares("n1", &[share("a", "u1", "GPU-a")]);
    let mut standard = client.watch(replica.aggregated_api, "/podresources?watch=true&timeoutSeconds=60", JSON).await;
    assert_eq!(standard.event().await.0, "ADDED");
}

#[tokio::test]
async fn open_watches_end_cleanly_at_sigterm() {
    let bench = Bench::new().await;
    let mut replica = bench.ready().await;
    let client = bench.client();
    let mut over_http2 = client.watch(replica.aggregated_api, "/gpuinfos?watch=true", JSON).await;
    assert_eq!(over_http2.event().await, ("ADDED".to_owned(), "n1".to_owned()));
    let over_http1 = client.send_http1(replica.aggregated_api, &format!("{BASE}/gpuinfos?watch=true")).await.unwrap();
    replica.signal("TERM").await;
    assert_eq!(over_http2.next().await, None);
    within("the end of the body", over_http1.into_body().collect()).await.expect("a complete body");
    assert_eq!(replica.ended().await.code(), Some(0), "{}", replica.log());
}

#[tokio::test]
async fn watch_goes_on_while_the_api_server_is_away() {
    let bench = Bench::new().await;
    let replica = bench.ready().await;
    let client = bench.client();
    let mut lines = client.watch(replica.aggregated_api, "/podresources?watch=true", JSON).await;
    bench.server().go_away().await;
    until("stale", async || {
        replica.page("readyz").await.filter(|(code, text)| *code == 200 && text.contains("from memory"))
    })
    .await;
    bench.shares("n1", &[share("a", "u1", "GPU-a")]);
    bench.server().expire();
    bench.server().come_back().await;
    assert_eq!(lines.event().await, ("ADDED".to_owned(), "default.a".to_owned()));
}

#[tokio::test]
async fn more_watches_than_places_are_refused_until_one_ends() {
    const PLACES: usize = 2000;
    /// Streams that a replica lets a connection have.
    const STREAMS: usize = 200;
    let bench = Bench::new().await;
    let replica = bench.ready().await;
    let client = bench.client();
    let watch = || {
        let uri = format!("https://{}{BASE}/podresources?watch=true", replica.aggregated_api);
        Request::get(uri).body(Empty::<Bytes>::new()).unwrap()
    };
    let mut open = Vec::new();
    for _ in 0..PLACES / STREAMS {
        let mut calls = client.connect(replica.aggregated_api).await.unwrap();
        for _ in 0..STREAMS {
            let answer = within("a watch", calls.send_request(watch())).await.unwrap();
            assert_eq!(answer.status(), 200);
            open.push(answer);
        }
    }
    assert_eq!(open.len(), PLACES);
    let path = format!("{BASE}/podresources?watch=true");
    let (code, status) = client.ask(replica.aggregated_api, Method::GET, &path, JSON).await;
    assert_eq!((code, &status["reason"]), (429, &json!("TooManyRequests")), "{status}");
    open.pop();
    until("the place", async || {
        let answer = client.send(replica.aggregated_api, watch()).await.unwrap();
        (answer.status() == 200).then_some(())
    })
    .await;
}
