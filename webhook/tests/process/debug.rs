//! The pages for those who look for a fault.

use http::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, about, pod, to};
use crate::until;

#[tokio::test]
async fn debug_pages_answer_at_admin_address_alone() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    // Longer than a connection may be without a call that has succeeded, on the listeners of the pod network.
    for path in ["debug/log", "debug/threads", "debug/state", "debug/pprof/profile?seconds=12"] {
        assert_eq!(replica.page(path).await.unwrap().0, 404, "{path}");
        assert_eq!(replica.admin_page(path).await.unwrap().0, 200, "{path}");
    }
    let https = bench.https();
    for address in [replica.address, replica.queries, replica.extender] {
        assert_eq!(https.ask(Method::GET, (address, "/debug/log"), &[], "").await.code, 404, "{address}");
    }
}

#[tokio::test]
async fn state_shows_what_the_replica_decides_by() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let https = bench.https();
    let [first, second] = [bench.pod(&pod("a", 8, 30)).await, bench.pod(&pod("b", 64, 30)).await];
    https.post(replica.extender, "/filter", about(&first, &["n1"]).to_string()).await;
    https.post(replica.extender, "/bind", to(&first, "n1").to_string()).await;
    let state = until("the state", async || {
        let (_, text) = replica.admin_page("debug/state").await?;
        let state: Value = serde_json::from_str(&text).unwrap();
        (state["reservations"] != json!([]) && state["waitingPods"] != json!([])).then_some(state)
    })
    .await;
    assert_eq!(state["reservations"], json!([{ "podUid": first["metadata"]["uid"], "node": "n1" }]), "{state:#}");
    assert_eq!(state["waitingPods"][0]["podUid"], second["metadata"]["uid"]);
    assert_eq!(state["leader"]["who"], "this replica");
    assert_eq!(state["watches"]["gpunodes"], json!({ "listed": true, "problem": null }));
    assert_eq!(state["nodes"][0]["name"], "n1");
    assert_eq!(state["nodes"][0]["cards"][0]["pods"], 1);
}

#[tokio::test]
async fn replica_stops_during_a_profile() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let mut replica = bench.alone(&json!({})).await;
    let profile = loop {
        let profile = tokio::spawn(replica.admin_page_later("debug/pprof/profile?seconds=120"));
        // Refused while the other one is being taken; otherwise this one came first.
        if replica.admin_page("debug/pprof/profile?seconds=1").await.unwrap().0 == 409 {
            break profile;
        }
    };
    replica.signal("TERM").await;
    assert_eq!(replica.ended().await.code(), Some(0));
    assert_eq!(profile.await.unwrap().unwrap().0, 200);
}
