//! From SIGTERM to the end.

use fake_apiserver::Request as Asked;
use http::Request;
use http_body_util::Full;
use serde_json::json;

use crate::bench::{Bench, about, pod, route, to};
use crate::{until, within};

#[tokio::test]
async fn sigterm_releases_the_lease_and_reviews_go_on() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let mut keys = json!({});
    keys["shutdownDelay"] = "5s".into();
    let [mut leader, follower] = bench.pair(&keys).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 8, 0)).await);
    let body = about(&made, &["n1"]).to_string();
    let (mut calls, connection) = https.http2(leader.extender).await;
    let request = Request::post(format!("https://{}/filter", leader.extender)).body(Full::from(body.clone())).unwrap();
    assert_eq!(calls.send_request(request).await.unwrap().status(), 200);
    let (mut leases, _) = bench.server.feed("Lease");
    leader.signal("TERM").await;
    // The scheduler's connection would last for ever: it is closed, and the next one is routed to the follower.
    within("the end of the connection", connection).await.unwrap().unwrap();
    follower.leads().await;
    let routed = bench.server.wait_for(|view| route(view).filter(|to| *to == follower.extender));
    within("a route to the follower", routed).await;
    assert_eq!(https.post(follower.extender, "/filter", body.clone()).await.json()["NodeNames"], json!(["n1"]));
    assert_eq!(https.post(leader.extender, "/filter", body).await.code.as_u16(), 503);
    bench.server.resolve("divvy-system", "divvy-webhook", &[leader.address]);
    bench.pod(&pod("b", 8, 0)).await;
    let (code, said) = leader.page("readyz").await.unwrap();
    assert_eq!((code, &*said), (503, "stopping\n"));
    assert_eq!(leader.ended().await.code(), Some(0));
    let mut holders: Vec<String> = Vec::new();
    while holders.last().is_none_or(|holder| holder != "divvy-webhook-b") {
        let changes = within("the follower's Lease", leases.next()).await;
        let leases = changes.iter().filter_map(|change| change.after.as_ref());
        holders.extend(leases.map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap().to_owned()));
    }
    holders.dedup();
    holders.retain(|holder| holder != "divvy-webhook-a"); // a renewal that was under way
    assert_eq!(holders, ["", "divvy-webhook-b"], "released, not expired");
}

#[tokio::test]
async fn call_in_flight_is_answered_before_the_lease_is_released() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let mut keys = json!({});
    keys["shutdownDelay"] = "1ms".into();
    let mut replica = bench.alone(&keys).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 8, 0)).await);
    bench.server.swallow("create", "/binding", 1);
    let call = https.post(replica.extender, "/bind", to(&made, "n1").to_string());
    let stop = async {
        let binding = |request: &&Asked| request.subresource == "binding";
        let sent = bench.server.wait_for(|view| view.requests().iter().find(binding).map(drop));
        within("a binding", sent).await;
        replica.signal("TERM").await;
    };
    let (answer, ()) = tokio::join!(call, stop);
    let why = answer.json()["Error"].as_str().unwrap().to_owned();
    assert!(why.contains("didn't answer"), "{why}");
    assert_eq!(replica.ended().await.code(), Some(0));
    let lease = bench.server.get("Lease", "divvy-system", "divvy-webhook").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "");
    let requests = bench.server.requests();
    let last = |verb: &str, name: &str| {
        requests.iter().rposition(|request| request.verb == verb && request.path.ends_with(name)).unwrap()
    };
    assert!(last("get", "/pods/a") < last("update", "/leases/divvy-webhook"), "looked after the pod first");
}

#[tokio::test]
async fn sigint_stops_and_a_second_signal_aborts() {
    let bench = Bench::new().await;
    let mut replica = bench.start("divvy-webhook-a", &json!({ "shutdownDelay": "1ms" }));
    replica.leads().await;
    replica.signal("INT").await;
    assert_eq!(replica.ended().await.code(), Some(0), "{}", replica.log());

    let mut replica = bench.start("divvy-webhook-b", &json!({ "shutdownDelay": "1h" }));
    replica.leads().await;
    replica.signal("TERM").await;
    replica.says("stopping").await;
    replica.signal("TERM").await;
    assert_eq!(replica.ended().await.code(), Some(1));
    assert!(replica.log().contains("SIGTERM while stopping: aborted"), "{}", replica.log());
}

#[tokio::test]
async fn stop_is_bounded_without_api_server_and_with_idle_client() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let mut replica = bench.alone(&json!({ "shutdownDelay": "1ms", "drainTimeout": "1s" })).await;
    bench.server.go_away().await;
    let _silent = tokio::net::TcpStream::connect(replica.address).await.unwrap();
    replica.signal("TERM").await;
    assert_eq!(replica.ended().await.code(), Some(0));
    until("its log says so", async || replica.log().contains("not released").then_some(())).await;
}
