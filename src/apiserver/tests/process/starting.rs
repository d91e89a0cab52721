//! Readiness, rights, caBundle and bad configuration.

use hyper::StatusCode;
use serde_json::json;
use tokio::process::Command;

use crate::bench::{Bench, PROGRAM};
use crate::{until, within};

#[tokio::test]
async fn ready_after_nodes_certificate_and_front_proxy() {
    let bench = Bench::new().await;
    bench.server.fail("list", "gpunodes", 2, StatusCode::FORBIDDEN);
    let replica = bench.start(&json!({}));
    until("what is missing", async || {
        replica.page("readyz").await.filter(|(code, text)| *code == 503 && text.contains("gpunodes not listed yet"))
    })
    .await;
    replica.ready().await;
    let (_, metrics) = replica.page("metrics").await.unwrap();
    assert!(metrics.contains("divvy_apiserver_watches 0"), "{metrics}");
}

#[tokio::test]
async fn every_metric_is_documented_with_type_and_labels() {
    let bench = Bench::new().await;
    let replica = bench.ready(&json!({})).await;
    bench.client().get(replica.address, "/podresources").await;
    let (_, page) = replica.page("metrics").await.unwrap();
    divvy_testkit::metrics::compare(&page, "divvy-apiserver").unwrap_or_else(|differences| panic!("{differences}"));
}

#[tokio::test]
async fn installed_rights_suffice_and_fill_in_the_bundle() {
    let bench = Bench::new().await;
    let replica = bench.ready(&json!({})).await;
    let filled = bench.server.wait_for(|view| {
        let service = view.get("APIService", "", "v1alpha1.metrics.nvidia.com")?;
        service["spec"]["caBundle"].is_string().then_some(())
    });
    within("caBundle", filled).await;
    bench.client().get(replica.address, "/podresources").await;
    let refused = bench.server.requests().into_iter().filter(|request| request.code == 403);
    let refused: Vec<_> = refused.map(|request| format!("{} {}", request.verb, request.path)).collect();
    assert_eq!(refused, [""; 0]);
}

#[tokio::test]
async fn bad_configuration_exits_with_64() {
    for (args, said) in [
        (&["--namespace=Divvy"][..], "is not an object's name"),
        (&[][..], "namespace is missing"),
        (&["--namespace=a", "--listen-address=here"][..], "--listen-address"),
        (&["--namespace=a", "--config-file=/nonexistent"][..], "/nonexistent"),
        (&["--cluster-config=/x"][..], "--cluster-config"),
    ] {
        let ended = Command::new(PROGRAM).args(args).env_clear().output().await.unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(64), "{error}");
        assert!(error.contains(said), "{error}");
    }
}
