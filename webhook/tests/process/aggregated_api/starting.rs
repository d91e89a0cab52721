//! Readiness, rights and caBundle.

use hyper::StatusCode;
use serde_json::json;

use super::bench::Bench;
use crate::{until, within};

#[tokio::test]
async fn nodes_are_waited_for() {
    let bench = Bench::new().await;
    bench.server().fail("list", "gpunodes", 2, StatusCode::FORBIDDEN);
    let replica = bench.cluster().start("divvy-webhook-a", &json!({ "aggregatedApi": "on" }));
    until("what is missing", async || {
        replica.page("readyz").await.filter(|(code, text)| *code == 503 && text.contains("gpunodes not listed yet"))
    })
    .await;
    replica.ready().await;
    let (_, metrics) = replica.page("metrics").await.unwrap();
    assert!(metrics.contains("divvy_aggregated_api_watches 0"), "{metrics}");
}

#[tokio::test]
async fn reviews_do_not_wait_for_the_front_proxy() {
    let bench = Bench::without_authority().await;
    let replica = bench.cluster().start("divvy-webhook-a", &json!({ "aggregatedApi": "on" }));
    replica.ready().await;
    let (code, text) = replica.page("readyz").await.unwrap();
    assert_eq!(code, 200);
    assert!(text.contains("aggregated API not served, no authority of the front proxy yet"), "{text}");
    let refused = bench.client().send_http1(replica.aggregated_api, "/apis").await;
    refused.map(drop).expect_err("nobody is known");
}

#[tokio::test]
async fn nothing_is_served_or_kept_unless_switched_on() {
    let bench = Bench::new().await;
    let replica = bench.cluster().start("divvy-webhook-a", &json!({}));
    replica.ready().await;
    tokio::net::TcpStream::connect(replica.aggregated_api).await.expect_err("nobody listens");
    let (_, metrics) = replica.page("metrics").await.unwrap();
    assert!(!metrics.contains("aggregated_api_"), "{metrics}");
    let (_, state) = replica.admin_page("debug/state").await.unwrap();
    assert!(state.contains("\"aggregatedApi\": null") || state.contains("\"aggregatedApi\":null"), "{state}");
    let read = bench.server().requests().into_iter().find(|request| request.path.contains("configmaps"));
    assert!(read.is_none(), "{read:?}");
}

#[tokio::test]
async fn installed_rights_suffice_and_fill_in_the_bundle() {
    let bench = Bench::new().await;
    let replica = bench.ready().await;
    let filled = bench.server().wait_for(|view| {
        let service = view.get("APIService", "", "v1alpha1.metrics.nvidia.com")?;
        service["spec"]["caBundle"].is_string().then_some(())
    });
    within("caBundle", filled).await;
    bench.client().get(replica.aggregated_api, "/podresources").await;
    let refused = bench.server().requests().into_iter().filter(|request| request.code == 403);
    let refused: Vec<_> = refused.map(|request| format!("{} {}", request.verb, request.path)).collect();
    assert_eq!(refused, [""; 0]);
}
