//! `/metrics`: that all of it is documented, and how long pods wait.

use divvy_testkit::metrics;
use serde_json::json;

use crate::bench::{Bench, about, pod, to};
use crate::{aggregated_api, until};

#[tokio::test]
async fn every_metric_is_documented_with_type_and_labels() {
    let aggregated = aggregated_api::Bench::new().await;
    let bench = aggregated.cluster();
    bench.node("n2", 1);
    let replica = bench.alone(&json!({ "aggregatedApi": "on" })).await;
    let ask = async || aggregated.client().connect(replica.aggregated_api).await.ok();
    until("the front proxy is known", ask).await;
    aggregated.client().get(replica.aggregated_api, "/podresources").await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 8, 30)).await);
    for (path, body) in [("/filter", about(&made, &["n2"])), ("/bind", to(&made, "n2"))] {
        https.post(replica.extender, path, body.to_string()).await;
    }
    let (_, page) = replica.page("metrics").await.unwrap();
    metrics::compare(&page, "divvy-webhook").unwrap_or_else(|differences| panic!("{differences}"));
}

#[tokio::test]
async fn longest_wait_grows_while_a_pod_is_pending() {
    const WAIT: &str = "divvy_pending_pods_longest_wait_seconds";
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    assert!(replica.metric(WAIT, &[]).await <= 0.0);
    bench.pod(&pod("first", 8, 30)).await;
    replica.counts(WAIT, &[], 0.3).await;
    bench.pod(&pod("second", 8, 30)).await;
    replica.counts("divvy_pending_pods", &[], 2.0).await;
    assert!(replica.metric(WAIT, &[]).await >= 0.3);
    bench.server.delete("Pod", "default", "first", None).unwrap();
    until("the wait of the second pod", async || (replica.metric(WAIT, &[]).await < 0.3).then_some(())).await;
    bench.server.delete("Pod", "default", "second", None).unwrap();
    until("no wait", async || (replica.metric(WAIT, &[]).await <= 0.0).then_some(())).await;
}
