//! How long the scheduler waits for members of a gang: `filter` of the first, which holds GPUs for all, and of the others, beside
//! the same pods without a group.
//!
//! ```text
//! cargo bench -p divvy-webhook --bench gangs
//! ```

#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod cluster;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Cluster, Pods, pod};
use divvy_index::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};
use divvy_webhook::extender::Extender;
use serde_json::{Value, json};

const NODES: usize = 5_000;
/// Nodes that the scheduler names: as many as it looks at in a cluster of this size.
const NAMES: usize = 500;
const ROUNDS: usize = 5;

/// Milliseconds.
struct Run {
    first: f64,
    /// Of each of the others.
    others: f64,
    /// Of each of as many pods that are alone.
    alone: f64,
}

fn main() {
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (nodes, sizes, rounds) = if is_test { (50, &[4][..], 1) } else { (NODES, &[8, 64, 512][..], ROUNDS) };
    println!("{nodes} nodes, filter in ms: median (least to most) of {rounds} rounds");
    for pods in [Pods::Known, Pods::Pairs] {
        for size in sizes {
            let runs: Vec<Run> = (0..rounds).map(|round| run(nodes, *size, round, pods)).collect();
            let of = |figure: fn(&Run) -> f64| {
                let mut all: Vec<f64> = runs.iter().map(figure).collect();
                all.sort_by(f64::total_cmp);
                format!("{:.2} ({:.2} to {:.2})", all[all.len() / 2], all[0], all[all.len() - 1])
            };
            let [first, others, alone] = [of(|run| run.first), of(|run| run.others), of(|run| run.alone)];
            println!("{pods:?}, {size} pods: first {first}, others {others} each, alone {alone} each");
        }
    }
}

/// All pods are of one shape, as those of a Job are.
fn run(nodes: usize, size: usize, round: usize, pods: Pods) -> Run {
    let cluster = Cluster::new(nodes, true);
    let extender = Extender::new(Arc::clone(&cluster.index), 16);
    let group =
        PodGroup { api: PodGroupApi::Kubernetes, namespace: "team-a".to_owned(), name: format!("gang-{round}") };
    let of = |number: usize, is_member: bool| {
        let mut pod = pod(round, pods);
        pod["metadata"]["uid"] = format!("{is_member}-{number}").into();
        if is_member {
            pod["spec"]["schedulingGroup"] = json!({ "podGroupName": group.name });
        }
        pod
    };
    cluster.index.apply_pod_group(group.clone(), PodGroupSpec { min: size, wait: PodGroupSpec::WAIT });
    for number in 0..size {
        cluster.index.apply_pod(&serde_json::from_value(of(number, true)).expect("a pod"), Instant::now());
    }
    let names: Vec<&String> = cluster.names.iter().take(NAMES).collect();
    let filter = |pod: Value| {
        let body = json!({ "Pod": pod, "Nodes": null, "NodeNames": names }).to_string().into_bytes();
        let begun = Instant::now();
        let answer = extender.filter(&body, begun).expect("a body of ours");
        let took = begun.elapsed();
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert!(answer["NodeNames"].as_array().is_some_and(|names| !names.is_empty()), "{answer}");
        took
    };
    let alone: Duration = (0..size).map(|number| filter(of(number, false))).sum();
    let first = filter(of(0, true));
    let others: Duration = (1..size).map(|number| filter(of(number, true))).sum();
    let each = |sum: Duration, count: usize| sum.as_secs_f64() * 1e3 / f64::from(u32::try_from(count).unwrap_or(1));
    Run { first: each(first, 1), others: each(others, size - 1), alone: each(alone, size) }
}
