//! Wake-ups of pods that the extender has refused.

use divvy_api::names::annotation::GENERATION;
use serde_json::{Value, json};

use crate::bench::{Bench, about, pod};
use crate::{until, within};

impl Bench {
    /// What a container of another pod holds of the only GPU of n1: all or nothing.
    fn hold(&self, is_held: bool) {
        self.report("n1", |status| {
            let card = status["cards"][0]["uuid"].clone();
            let share = json!({
                "podUid": "other", "namespace": "default", "pod": "other", "container": "main", "kind": "app", "card": card,
                "memoryMi": 40_960, "cores": 100, "exclusive": true,
            });
            status["shares"] = if is_held { json!([share]) } else { json!([]) };
        });
    }

    fn woken(&self) -> Value {
        self.server.get("Node", "", "n1").unwrap()["metadata"]["annotations"][GENERATION].clone()
    }
}

#[tokio::test]
async fn waiting_pod_is_woken_when_the_leader_knows_of_the_release() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    bench.hold(true);
    let replica = bench.alone(&json!({})).await;
    let (https, made) = (bench.https(), bench.pod(&pod("a", 8, 0)).await);
    let body = about(&made, &["n1"]).to_string();
    let filter = async || https.post(replica.extender, "/filter", body.clone()).await.json()["NodeNames"].clone();
    until("the pod waits", async || (replica.metric("divvy_pending_pods", &[]).await > 0.5).then_some(())).await;
    assert_eq!(filter().await, json!([]));
    // Of the start: the pod may have been refused by another leader.
    let before = bench.woken();
    bench.hold(false);
    let changed = bench.server.wait_for(|view| {
        let value = view.get("Node", "", "n1")?["metadata"]["annotations"][GENERATION].clone();
        (value.is_string() && value != before).then_some(())
    });
    within("a change of the Node", changed).await;
    assert_eq!(filter().await, json!(["n1"]), "by what it answers then, the pod fits");
}
