//! Who is let in.

use bytes::Bytes;
use fake_apiserver::pki;
use http_body_util::Empty;
use hyper::Request;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::bench::Bench;
use super::client::BASE;
use crate::until;

fn forged(to: std::net::SocketAddr) -> Request<Empty<Bytes>> {
    forged_to(to, &format!("{BASE}/podresources"))
}

fn forged_to(to: std::net::SocketAddr, path: &str) -> Request<Empty<Bytes>> {
    let request = Request::get(format!("https://{to}{path}"));
    let request = request.header("x-remote-user", "kubernetes-admin").header("x-remote-group", "system:masters");
    request.body(Empty::new()).unwrap()
}

#[tokio::test]
async fn only_the_front_proxy_gets_past_the_handshake() {
    let bench = Bench::new().await;
    let replica = bench.ready().await;
    let other = pki::authority("front-proxy-ca").unwrap();
    for (who, client) in [
        ("no certificate", bench.stranger()),
        ("another authority", bench.client_of(&other, "front-proxy-client")),
        ("another name", bench.client_of(&bench.proxy, "kubelet")),
    ] {
        let refused = client.send(replica.aggregated_api, forged(replica.aggregated_api)).await;
        refused.map(|answer| answer.status()).expect_err(who);
        client.send_http1(replica.aggregated_api, &format!("{BASE}/podresources")).await.map(drop).expect_err(who);
    }
    let answer = bench.client().send(replica.aggregated_api, forged(replica.aggregated_api)).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
}

#[tokio::test]
async fn debug_pages_answer_at_admin_address_alone() {
    let bench = Bench::new().await;
    let replica = bench.ready().await;
    for path in ["debug/log", "debug/threads", "debug/state", "debug/pprof/profile?seconds=1"] {
        assert_eq!(replica.page(path).await.unwrap().0, 404, "{path}");
        assert_eq!(replica.admin_page(path).await.unwrap().0, 200, "{path}");
    }
    let answer =
        bench.client().send(replica.aggregated_api, forged_to(replica.aggregated_api, "/debug/state")).await.unwrap();
    assert_eq!(answer.status().as_u16(), 404);
    let (_, state) = replica.admin_page("debug/state").await.unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    let state = &state["aggregatedApi"];
    assert_eq!(state["served"]["gpuinfos"]["objects"], 1, "{state:#}");
    assert_eq!(state["knowsFrontProxy"], json!(true));
}

#[tokio::test]
async fn rotated_authority_lets_in_new_clients_and_ends_old_watches() {
    let bench = Bench::new().await;
    let replica = bench.ready().await;
    let (old, new) = (bench.client(), pki::authority("front-proxy-ca").unwrap());
    let mut lines = old.watch(replica.aggregated_api, "/podresources?watch=true", "application/json").await;
    let rotate = |data| {
        let change = |map: &mut Value| map["data"] = data;
        bench.server().edit("ConfigMap", "kube-system", "extension-apiserver-authentication", change).unwrap();
    };
    rotate(json!({ "requestheader-client-ca-file": "garbage" }));
    rotate(Bench::authentication(&[&new]));
    let client = bench.client_of(&new, "front-proxy-client");
    until("the new authority", async || client.send(replica.aggregated_api, forged(replica.aggregated_api)).await.ok())
        .await;
    assert_eq!(lines.next().await, None);
    old.send(replica.aggregated_api, forged(replica.aggregated_api))
        .await
        .map(drop)
        .expect_err("its authority is gone");
}

#[tokio::test]
async fn silent_strangers_do_not_keep_the_front_proxy_out() {
    let bench = Bench::new().await;
    let replica = bench.ready().await;
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(TcpStream::connect(replica.aggregated_api).await.unwrap());
    }
    bench.client().get(replica.aggregated_api, "/podresources").await;
}
