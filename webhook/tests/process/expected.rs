//! Requests that are expected to come.

use serde_json::json;

use crate::bench::{Bench, pod};

/// The pods that a replica lists are all that it learns from at its start; the last ten are of another kind.
#[tokio::test]
async fn replica_that_starts_expects_requests_of_listed_pods() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    for number in 0..60 {
        bench.server.create(&pod(&format!("p{number:02}"), if number < 50 { 8 } else { 20 }, 0)).unwrap();
    }
    let replica = bench.alone(&json!({})).await;
    let expected = &bench.explain(&replica, &pod("asked", 8, 0)).await["expected"];
    assert_eq!((&expected["pods"], expected["requests"].as_array().unwrap().len()), (&json!(60), 2), "{expected}");
    replica.counts("divvy_request_distribution_pods", &[], 60.0).await;
}
