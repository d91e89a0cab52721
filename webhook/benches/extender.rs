//! How long the scheduler waits: `filter` and `prioritize` together, bodies in and bodies out, over many different pods.
//!
//! ```text
//! cargo bench -p divvy-webhook --bench extender
//! ```

mod cluster;

use std::hint::black_box;
use std::time::{Duration, Instant};

use cluster::{Cluster, Load, Shapes};

const NODES: usize = 5_000;
const CALLS: usize = 2_000;
/// The best of some runs of each call: the tail of the work is wanted, not that of the machine.
const RUNS: usize = 3;

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        keep(50);
        outlook(50, 20);
        return run(50, 40, 20);
    }
    keep(NODES);
    println!();
    run(NODES, CALLS, 500);
    println!();
    run(NODES, CALLS / 4, NODES);
    println!();
    outlook(NODES, CALLS);
}

fn run(nodes: usize, calls: usize, names: usize) {
    for load in [Load::Quiet, Load::Storm] {
        for shapes in [cluster::FEW, cluster::MANY, cluster::MULTI, cluster::NOWHERE] {
            for looks_ahead in [false, true] {
                let best = (0..RUNS).map(|_| times(nodes, calls, names, shapes, looks_ahead, load));
                let best =
                    best.reduce(|best, times| best.into_iter().zip(times).map(|(one, two)| one.min(two)).collect());
                let mix = if looks_ahead { "mix of 24" } else { "no mix" };
                let percentiles = percentiles(best.unwrap_or_default());
                println!("{names} names of {nodes} nodes, {load:?}, {}, {mix}: {percentiles}", shapes.name);
            }
        }
    }
}

/// What a large cluster takes in memory. Comes first, while nothing else does.
fn keep(nodes: usize) {
    let before = resident();
    let mut cluster = Cluster::without_reports(nodes);
    println!("{nodes} nodes with 8 cards and 8 pods each: {} MiB", resident() - before);
    for call in 0..32 {
        let body = cluster.filter_body(call, nodes, cluster::FEW);
        cluster.extender.filter(&body).expect("a body of ours");
    }
    println!("with 24 shapes of pods known: {} MiB", resident() - before);
}

/// In MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// The same calls in every run, without the first tenth.
fn times(nodes: usize, calls: usize, names: usize, shapes: Shapes, looks_ahead: bool, load: Load) -> Vec<Duration> {
    let mut cluster = Cluster::new(nodes, looks_ahead);
    let times = (0..calls + calls / 10).map(|call| time(&mut cluster, call, names, shapes, load));
    times.skip(calls / 10).collect()
}

/// What admission asks, with every node known.
fn outlook(nodes: usize, calls: usize) {
    for shapes in [cluster::FEW, cluster::MANY, cluster::MULTI, cluster::NOWHERE] {
        let mut cluster = Cluster::new(nodes, false);
        let time = |call| {
            cluster.change(Load::Storm);
            let start = Instant::now();
            black_box(cluster.outlook(call, shapes));
            start.elapsed()
        };
        let times = (0..calls).map(time).skip(calls / 10).collect();
        println!("outlook over {nodes} nodes, Storm, {}, pod read as well: {}", shapes.name, percentiles(times));
    }
}

/// One pod: `filter` with that many names, `prioritize` with those that it answered.
fn time(cluster: &mut Cluster, call: usize, names: usize, shapes: Shapes, load: Load) -> Duration {
    cluster.change(load);
    let filter = cluster.filter_body(call, names, shapes);
    let start = Instant::now();
    let answer = cluster.extender.filter(&filter).expect("a body of ours");
    let first = start.elapsed();
    let prioritize = Cluster::prioritize_body(call, &answer, shapes);
    let start = Instant::now();
    black_box(cluster.extender.prioritize(&prioritize).expect("a body of ours"));
    first + start.elapsed()
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |permille: usize| times[(times.len() - 1) * permille / 1000].as_micros();
    format!("p50 {} µs, p90 {}, p99 {}, most {}", at(500), at(900), at(990), at(1000))
}
