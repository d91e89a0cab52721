//! Pods that a tenant has made as large as etcd takes them, and that wait: some for a node, some on one.

use serde_json::{Value, json};

use crate::bench::{Bench, about, pod, to};
use crate::until;

const PODS: usize = 200;
const CHOOSY_PODS: usize = 40;
/// Bytes of `<`, of which JSON makes six times as many: 1.5 GB in all.
const LENGTH: usize = 1_300_000;
/// MiB resident at any time: half of the limit in `deploy/manifests/webhook-deployment.yaml`.
const MOST: u64 = 256;

fn large(number: usize) -> Value {
    let variable = json!({ "name": "A", "value": "<".repeat(LENGTH) });
    let mut pod = pod(&format!("large-{number}"), 0, 0);
    pod["spec"]["containers"] = json!([{ "name": "main", "image": "x", "env": [variable] }]);
    if number.is_multiple_of(2) {
        pod["spec"]["nodeName"] = "n1".into();
    }
    pod["status"] = json!({ "phase": "Pending" });
    pod
}

/// One that waits, and whose node affinity has as many values as it can.
fn choosy(number: usize) -> Value {
    let mut pod = pod(&format!("choosy-{number}"), 10, 0);
    let requirement = json!({ "key": "pool", "operator": "NotIn", "values": vec!["a"; LENGTH / 4] });
    let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [requirement] }] });
    pod["spec"]["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
    pod
}

#[tokio::test]
async fn large_pending_pods_are_listed_and_watched_in_little_memory() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    for number in 0..PODS {
        bench.server.create(&large(number)).unwrap();
    }
    for number in 0..CHOOSY_PODS {
        bench.server.create(&choosy(number)).unwrap();
    }
    let replica = bench.start("divvy-webhook-a", &json!({}));
    // Lists of this size take the stand-ins, which are built without optimization, longer than a minute.
    let ready = async || replica.log().contains("serving extender calls").then_some(());
    tokio::time::timeout(crate::LONG * 5, until_so(ready)).await.expect("it leads");
    replica.ready().await;
    bench.called(&[&replica]).await;
    for number in 0..3 {
        bench.server.create(&large(PODS + number)).unwrap();
    }
    let (https, made) = (bench.https(), bench.pod(&pod("ordinary", 10, 0)).await);
    let body = about(&made, &["n1"]).to_string();
    let kept = async || {
        let answer = https.post(replica.extender, "/filter", body.clone()).await.json();
        (answer["NodeNames"] == json!(["n1"])).then_some(())
    };
    until("n1 is kept", kept).await;
    let bound = bench.patiently(&https, &replica, "/bind", &to(&made, "n1")).await.json();
    assert_eq!(bound["Error"], "", "{bound}");
    let [_, most] = replica.resident();
    println!("{most} MiB resident at most, with {PODS} pods of {LENGTH} times \"<\"");
    assert!(most <= MOST, "{most} MiB");
}

async fn until_so(mut is_so: impl AsyncFnMut() -> Option<()>) {
    while is_so().await.is_none() {
        tokio::time::sleep(crate::PAUSE).await;
    }
}
