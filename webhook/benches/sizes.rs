//! What grows with the cluster: one replica's work at each size of a cluster, in process, without an API server.
//!
//! ```text
//! cargo bench -p divvy-webhook --bench sizes [-- NODES...]
//! ```
//!
//! Each size is measured in a process of its own, since memory that was freed stays resident. Times are processor time of the
//! thread that works, so that they hold beside other programs.

#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod cluster;

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Cluster, Pods, pod, resident};
use divvy_api::pod::wire::Resources;
use divvy_index::NodeObject;
use divvy_index::demand::Demand;
use divvy_webhook::admission::{Endpoint, Settings, review};
use divvy_webhook::extender::Extender;
use rand::RngExt as _;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

const SIZES: [usize; 5] = [1_000, 5_000, 10_000, 20_000, 50_000];
/// Measured calls of each kind.
const CALLS: usize = 300;
/// Nodes that report between two calls.
const REPORTS: usize = 2;
const SHORTLIST: usize = 16;
/// Longest search for nodes in a review, as in the webhook.
const PATIENCE: Duration = Duration::from_millis(2);
/// Set in the process that measures.
const MEASURES: &str = "DIVVY_BENCH_NODES";

fn main() -> ExitCode {
    if let Some(nodes) = std::env::var(MEASURES).ok().and_then(|nodes| nodes.parse().ok()) {
        measure(nodes);
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<usize> = std::env::args().filter_map(|nodes| nodes.parse().ok()).collect();
    let is_test = std::env::args().any(|arg| arg == "--test");
    let sizes = if is_test {
        &[50]
    } else if wanted.is_empty() {
        &SIZES[..]
    } else {
        &wanted
    };
    for nodes in sizes {
        let program = std::env::current_exe().expect("this program has a path");
        let status = Command::new(program).env(MEASURES, nodes.to_string()).status();
        if !status.is_ok_and(|status| status.success()) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn measure(nodes: usize) {
    let names = sampled(nodes);
    println!("\n{nodes} nodes with 8 GPUs and 8 pods each; kube-scheduler sends {names} names");
    let before = resident();
    let (mut cluster, learning) = filled(nodes);
    println!("  every object applied once: {learning:.1?}, {} MiB resident", resident() - before);
    cluster.keep_reports();
    let extender = Extender::new(Arc::clone(&cluster.index), SHORTLIST);

    print(
        "filter and prioritize, 24 shapes, the first of each",
        (0..24).map(|call| asked(&mut cluster, &extender, call, names, Pods::Known)),
    );
    let advance = |cluster: &Cluster| timed(|| cluster.index.snapshot().score_in_advance());
    println!("  all nodes evaluated for 24 shapes in advance: {:.1?}", advance(&cluster));
    for (what, pods) in [
        ("filter and prioritize, 24 shapes", Pods::Known),
        ("filter and prioritize, every pod another shape", Pods::New),
        ("filter, no node has so much memory", Pods::NewNowhere),
    ] {
        let time = |call| {
            cluster.change(REPORTS);
            asked(&mut cluster, &extender, call, names, pods)
        };
        print(what, (0..CALLS).map(time));
    }
    print(
        "review",
        (0..CALLS).map(|call| {
            cluster.change(REPORTS);
            reviewed(&cluster, call)
        }),
    );
    print("a node's report", (0..CALLS).map(|_| timed(|| cluster.change(1))));
    print(
        "in advance, four times a second, 50 reports since",
        (0..20).map(|_| {
            cluster.change(50);
            advance(&cluster)
        }),
    );
    print(
        "in advance, other requests expected",
        (0..5).map(|at| {
            cluster.index.expect(cluster::mix(20 + at));
            advance(&cluster)
        }),
    );
    print("soft taints, every 5 s", (0..10).map(|_| timed(|| drop(black_box(cluster.index.soft_taints_due(true))))));
}

/// Every Node, report and pod known, as at the end of a replica's start, and how long that took.
fn filled(nodes: usize) -> (Cluster, Duration) {
    let mut cluster = Cluster::silent(nodes, true);
    let mut learning = Duration::ZERO;
    for at in 0..nodes {
        let report = cluster.report(at);
        let name = cluster.names[at].clone();
        let node = NodeObject {
            allocatable: Some(Resources::of_cpu(96_000)),
            allocatable_gpus: Some(8 * 32),
            ..NodeObject::default()
        };
        let shares = &report.status.as_ref().expect("a report").shares;
        let pods: Vec<_> = shares
            .iter()
            .map(|share| {
                let mut pod = pod(at, Pods::Known);
                pod["metadata"]["uid"] = share.pod_uid.clone().into();
                pod["metadata"]["name"] = share.pod.clone().into();
                pod["spec"]["nodeName"] = name.as_str().into();
                serde_json::from_value(pod).expect("a pod")
            })
            .collect();
        learning += timed(|| {
            cluster.index.apply_node(&name, node);
            cluster.index.apply_gpu_node(&name, &report);
            for pod in &pods {
                cluster.index.apply_pod(pod, Instant::now());
            }
        });
    }
    (cluster, learning)
}

/// Names that kube-scheduler sends for a pod that fits everywhere: `numFeasibleNodesToFind` of 1.36.
fn sampled(nodes: usize) -> usize {
    let percent = (50_usize.saturating_sub(nodes / 125)).max(5);
    if nodes < 100 { nodes } else { (nodes * percent / 100).max(100) }
}

fn asked(cluster: &mut Cluster, extender: &Extender, call: usize, names: usize, pods: Pods) -> Duration {
    let from = cluster.rng.random_range(0..cluster.names.len());
    let names: Vec<&String> = cluster.names.iter().cycle().skip(from).take(names).collect();
    let pod = pod(call, pods);
    let body = |names: &Value| json!({"Pod": pod, "Nodes": null, "NodeNames": names}).to_string().into_bytes();
    let filter = body(&json!(names));
    let mut answer = Vec::new();
    let first = timed(|| answer = extender.filter(&filter).expect("a body of ours"));
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    if answer["NodeNames"].as_array().is_none_or(Vec::is_empty) {
        return first;
    }
    let prioritize = body(&answer["NodeNames"]);
    first + timed(|| drop(black_box(extender.prioritize(&prioritize).expect("a body of ours"))))
}

fn reviewed(cluster: &Cluster, call: usize) -> Duration {
    let body = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5", "operation": "CREATE", "namespace": "ml",
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod(call, Pods::New), "oldObject": null,
        },
    });
    let body = body.to_string().into_bytes();
    let fits = |demand: &Demand| Some(cluster.index.snapshot_for(demand).feasibility(demand, PATIENCE));
    timed(|| drop(black_box(review(&body, Endpoint::Mutate, &Settings::default(), &fits))))
}

/// Processor time of this thread.
fn timed(work: impl FnOnce()) -> Duration {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("processor time isn't negative");
    let start = now();
    work();
    now().saturating_sub(start)
}

fn print(what: &str, times: impl Iterator<Item = Duration>) {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("  {what}: p50 {:.1?}, p99 {:.1?}", at(50), at(99));
}
