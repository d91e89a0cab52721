//! How long the scheduler waits: `filter` and `prioritize` together, bodies in and bodies out, over many different pods.
//!
//! ```text
//! cargo bench -p divvy-webhook --bench extender [-- New Several]
//! ```

#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod cluster;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Cluster, Pods, loads, pod, resident, times};
use divvy_webhook::extender::Extender;
use rand::RngExt as _;
use serde_json::{Value, json};

const NODES: usize = 5_000;
const CALLS: usize = 600;
const SHORTLIST: usize = 16;
/// Calls after which nodes are asked in advance, which the webhook does four times a second: at 100 pods a second.
const IN_ADVANCE: usize = 25;

fn main() {
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (nodes, calls, few) = if is_test { (50, 20, 40) } else { (NODES, CALLS, 500) };
    keep(nodes);
    for (names, calls) in [(few, calls), (nodes, calls / 2)] {
        for looks_ahead in [false, true] {
            println!("\n{names} names of {nodes} nodes, {}", if looks_ahead { "mix of 24 kinds" } else { "no mix" });
            for pods in Pods::wanted() {
                for (load, changes) in loads(pods) {
                    let new = || asked(Cluster::new(nodes, looks_ahead));
                    let times = times(calls, new, |asked, call| time(asked, call, names, pods, *changes));
                    println!("{pods:?}, {load}: {times}");
                }
            }
        }
    }
}

/// What a large cluster takes in memory. Comes first, while nothing else does.
fn keep(nodes: usize) {
    let before = resident();
    let mut cluster = Cluster::silent(nodes, true);
    for at in 0..nodes {
        let report = cluster.report(at);
        cluster.index.apply_gpu_node(&cluster.names[at], &report);
        for share in report.status.unwrap_or_default().shares {
            let mut pod = pod(at, Pods::Known);
            pod["metadata"]["uid"] = share.pod_uid.into();
            pod["spec"]["nodeName"] = cluster.names[at].as_str().into();
            cluster.index.apply_pod(&serde_json::from_value(pod).expect("a pod"), Instant::now());
        }
    }
    println!("{nodes} nodes with 8 cards and 8 pods each: {} MiB", resident() - before);
    let mut asked = asked(cluster);
    for pods in Pods::wanted() {
        for call in 0..40 {
            time(&mut asked, call, nodes, pods, 0);
        }
    }
    println!("with many shapes of pods known: {} MiB", resident() - before);
}

fn asked(cluster: Cluster) -> (Cluster, Extender) {
    let extender = Extender::new(Arc::clone(&cluster.index), SHORTLIST);
    (cluster, extender)
}

/// One pod: `filter` with that many names, `prioritize` with those that it answered.
fn time(
    (cluster, extender): &mut (Cluster, Extender),
    call: usize,
    names: usize,
    pods: Pods,
    changes: usize,
) -> Duration {
    cluster.change(changes);
    if call.is_multiple_of(IN_ADVANCE) {
        cluster.index.snapshot().score_in_advance();
    }
    let from = cluster.rng.random_range(0..cluster.names.len());
    let names: Vec<&String> = cluster.names.iter().cycle().skip(from).take(names).collect();
    let pod = pod(call, pods);
    let body = |names: Value| json!({"Pod": pod, "Nodes": null, "NodeNames": names}).to_string().into_bytes();
    let filter = body(json!(names));
    let start = Instant::now();
    let answer = extender.filter(&filter).expect("a body of ours");
    let first = start.elapsed();
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    let prioritize = body(answer["NodeNames"].clone());
    let start = Instant::now();
    black_box(extender.prioritize(&prioritize).expect("a body of ours"));
    first + start.elapsed()
}
