//! Events on pods that wait.

use serde_json::json;

use crate::LONG;
use crate::bench::{Bench, pod};

#[tokio::test]
async fn pending_pod_gets_one_event_from_the_leader() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replicas = bench.pair(&json!({})).await;
    bench.pod(&pod("fits", 8, 0)).await;
    bench.pod(&pod("large", 80, 0)).await;
    // It has waited for half a minute then, as one sees who looks every quarter of a minute.
    let event = bench.server.wait_for(|view| view.list("Event").first().cloned());
    let event = tokio::time::timeout(2 * LONG, event).await.expect("an event");
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("NoNodeFits")));
    assert_eq!(event["involvedObject"]["name"], "large");
    assert_eq!(event["reportingInstance"], "divvy-webhook-a");
    assert!(event["message"].as_str().unwrap().contains("none could ever run this pod"), "{event}");
    assert_eq!(bench.server.list("Event").len(), 1);
    assert_eq!(bench.asked("create", "/events") + bench.asked("patch", "/events"), 1);
}
