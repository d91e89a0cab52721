//! What one review costs in process, from bytes to bytes, with the fit over all nodes that are known.
//!
//! ```text
//! cargo bench -p divvy-webhook --bench admission [-- New Several]
//! ```

#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod cluster;

use std::hint::black_box;
use std::time::{Duration, Instant};

use cluster::{Cluster, Pods, loads, pod, times};
use divvy_index::demand::Demand;
use divvy_webhook::admission::{Endpoint, Settings, review};
use serde_json::json;

const NODES: usize = 5_000;
const CALLS: usize = 600;
/// Longest search for nodes, as in the webhook.
const PATIENCE: Duration = Duration::from_millis(2);

fn main() {
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (nodes, calls) = if is_test { (50, 20) } else { (NODES, CALLS) };
    for looks_ahead in [false, true] {
        println!("\n{nodes} nodes, {}", if looks_ahead { "mix of 24 kinds" } else { "no mix" });
        for pods in Pods::wanted() {
            for (load, changes) in loads(pods) {
                let new = || Cluster::new(nodes, looks_ahead);
                let times = times(calls, new, |cluster, call| time(cluster, call, pods, *changes));
                println!("{pods:?}, {load}: {times}");
            }
        }
    }
}

fn time(cluster: &mut Cluster, call: usize, pods: Pods, changes: usize) -> Duration {
    cluster.change(changes);
    let body = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5", "operation": "CREATE", "namespace": "ml",
            "kind": { "group": "", "version": "v1", "kind": "Pod" }, "object": pod(call, pods), "oldObject": null,
        },
    });
    let body = body.to_string().into_bytes();
    let start = Instant::now();
    let fits = |demand: &Demand| Some(cluster.index.snapshot_for(demand).feasibility(demand, PATIENCE));
    black_box(review(&body, Endpoint::Mutate, &Settings::default(), &fits));
    start.elapsed()
}
