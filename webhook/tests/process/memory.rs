//! What a replica keeps resident. A figure, and no test of every day: `hack/bench webhook` takes it.

#[allow(dead_code, reason = "the benchmarks use the rest")]
#[path = "../../benches/cluster.rs"]
mod cluster;

use rand::RngExt as _;
use serde_json::{Value, json};

use self::cluster::{Cluster, Pods, pod};
use crate::bench::Bench;
use crate::https::Https;
use crate::replica::Replica;

const NODES: usize = 5_000;
/// Of each node's eight cards.
const SHARES: usize = 8;
/// Calls of each kind for pods of each kind, with as many names as a scheduler sends.
const CALLS: usize = 100;
const NAMES: usize = 500;
/// MiB, at any time.
const BUDGET: u64 = 150;

#[tokio::test]
#[ignore = "a figure of the release profile, and minutes of work: hack/bench webhook"]
async fn replica_of_a_large_cluster_stays_within_its_memory() {
    let bench = Bench::new().await;
    let mut cluster = Cluster::silent(NODES, false);
    for at in 0..NODES {
        fill(&bench, &mut cluster, at);
    }
    let replica = bench
        .alone(&{
            let mut keys = json!({});
            keys["logLevel"] = "info".into();
            keys
        })
        .await;
    assert!((replica.metric("divvy_nodes", &[]).await - 5_000.0).abs() < 0.5);
    say("ready", &replica);
    let https = bench.https();
    for pods in [Pods::New, Pods::NewPairs, Pods::Several, Pods::Nowhere] {
        for call in 0..CALLS {
            ask(&https, &replica, &mut cluster, &pod(call, pods)).await;
        }
        say(&format!("{CALLS} pods: {pods:?}"), &replica);
    }
    let [_, most] = replica.resident();
    assert!(most <= BUDGET, "{most} MiB");
}

/// A node, its report, and the pods whose shares it reports. All as large as in a real cluster.
fn fill(bench: &Bench, cluster: &mut Cluster, at: usize) {
    let name = cluster.names[at].clone();
    let images: Vec<Value> = (0..50)
        .map(|image| json!({ "names": [format!("registry.example.com/team/image-{image}@sha256:{}", "5f".repeat(32))], "sizeBytes": 1 }))
        .collect();
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "status": { "conditions": ready, "images": images },
    });
    bench.server.create(&node).unwrap();
    let mut report = json!(cluster.report(at));
    for (number, share) in report["status"]["shares"].as_array_mut().unwrap().iter_mut().enumerate() {
        assert!(number < SHARES);
        let mut holder = pod(at * SHARES + number, Pods::New);
        holder["metadata"]["name"] = share["pod"].clone();
        holder["metadata"]["namespace"] = share["namespace"].clone();
        holder["spec"]["nodeName"] = name.as_str().into();
        bench.server.create(&holder).unwrap();
        let runs = |pod: &mut Value| pod["status"]["phase"] = "Running".into();
        let [namespace, name] = ["namespace", "pod"].map(|key| share[key].as_str().unwrap());
        share["podUid"] = bench.server.edit("Pod", namespace, name, runs).unwrap()["metadata"]["uid"].clone();
    }
    bench.server.create(&report).unwrap();
    bench.report(&name, |status| *status = report["status"].clone());
}

async fn ask(https: &Https, replica: &Replica, cluster: &mut Cluster, pod: &Value) {
    let from = cluster.rng.random_range(0..NODES);
    let names: Vec<&String> = cluster.names.iter().cycle().skip(from).take(NAMES).collect();
    let body = json!({ "Pod": pod, "Nodes": null, "NodeNames": names }).to_string();
    for verb in ["/filter", "/prioritize"] {
        https.post(replica.extender, verb, body.clone()).await.json();
    }
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "operation": "CREATE",
            "namespace": "team-a", "object": pod,
        },
    });
    let review = https.post(replica.address, "/mutate", review.to_string()).await.json();
    assert_eq!(review["response"]["allowed"], true, "{review}");
}

fn say(what: &str, replica: &Replica) {
    let [now, most] = replica.resident();
    println!("{NODES} nodes, {} pods; {what}: {now} MiB resident, {most} at most   ≤ {BUDGET}", NODES * SHARES);
}
