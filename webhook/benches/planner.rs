//! What the planner takes: the first search for 10 000 pods of 300 shapes that fit nowhere, a change that helps none of them, a
//! call with nothing changed; and pods a second that find a place.
//!
//! ```text
//! cargo bench -p divvy-webhook --bench planner
//! ```

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::names::GATE;
use divvy_api::pod::wire::Resources;
use divvy_index::demand::{PlannedPods, SchedulingConfig};
use divvy_index::fixture::{node, pod, share, status};
use divvy_index::pod::{PodView, SchedulingTerms};
use divvy_index::{Index, NodeObject};

const CARDS: usize = 8;
const SCHEDULER: &str = "default-scheduler";
/// As many as are written at a time, and the time after which what was found is written.
const MOST: usize = 32;
const PATIENCE: Duration = Duration::from_millis(20);
const ROUNDS: u32 = 20;

fn main() {
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (full, pods, empty, placed) = if is_test { (10, 100, 10, 50) } else { (1_000, 10_000, 5_000, 1_000) };
    for preempts in [false, true] {
        println!("preemption {}", if preempts { "on" } else { "off" });
        waiting(full, pods, preempts);
        placing(empty, placed, preempts);
    }
}

/// An index of nodes all of whose GPUs have so many GiB held.
fn index(nodes: usize, held: u64, preempts: bool) -> Index {
    let planned = PlannedPods { schedulers: vec![SCHEDULER.to_owned()], groups_alone: false };
    let index = Index::new(SchedulingConfig { planned, preempts, ..SchedulingConfig::default() });
    for number in 0..nodes {
        report(&index, number, held);
    }
    index
}

fn report(index: &Index, number: usize, held: u64) {
    let name = format!("n{number}");
    let mut reported = node(&name, CARDS);
    let shares = (0..CARDS).filter(|_| held > 0).map(|card| share(&reported, &format!("{name}-{card}"), card, held, 0));
    let shares = shares.collect();
    status(&mut reported).shares = shares;
    let allocatable = Resources { cpu_milli: 128_000, others: [("pods".into(), 110)].into() };
    index.apply_node(&name, NodeObject { allocatable: Some(allocatable), ..NodeObject::default() });
    index.apply_gpu_node(&name, &reported);
}

fn come(index: &Index, pods: usize, shapes: usize) {
    let scheduling = Arc::new(SchedulingTerms {
        scheduler: SCHEDULER.to_owned(),
        gates: vec![GATE.to_owned()],
        ..SchedulingTerms::default()
    });
    for number in 0..pods {
        let shape = u64::try_from(number % shapes).unwrap_or_default();
        let (gib, cores) = (4 + shape % 30, u32::try_from(shape / 30 * 3).unwrap_or_default());
        let pod = PodView {
            requests: Resources::of_cpu(500),
            scheduling: Arc::clone(&scheduling),
            ..pod(&format!("p{number}"), 1, gib, cores)
        };
        index.apply_pod(&pod, Instant::now());
    }
}

/// Plans until there is no more to plan; the places that were found, and what it took.
fn plan(index: &Index) -> (usize, Duration) {
    let (begun, mut steps) = (Instant::now(), 0);
    loop {
        let (some, more) = index.plan(MOST, PATIENCE, &HashSet::new(), Instant::now());
        steps += some.len();
        if !more {
            return (steps, begun.elapsed());
        }
    }
}

fn waiting(nodes: usize, pods: usize, preempts: bool) {
    let index = index(nodes, 38, preempts);
    come(&index, pods, 300);
    let (steps, first) = plan(&index);
    assert_eq!(steps, 0, "they fit nowhere");
    let (mut helpless, mut nothing) = (Duration::ZERO, Duration::ZERO);
    for round in 0..ROUNDS {
        report(&index, 0, if round % 2 == 0 { 37 } else { 38 });
        helpless += plan(&index).1;
        nothing += plan(&index).1;
    }
    let (helpless, nothing) = (helpless / ROUNDS, nothing / ROUNDS);
    println!(
        "{pods} pods wait for {nodes} nodes: first search {first:.1?}, a change that helps none {helpless:.1?}, no change {nothing:.1?}"
    );
}

fn placing(nodes: usize, pods: usize, preempts: bool) {
    let index = index(nodes, 0, preempts);
    come(&index, pods, 24);
    let (steps, took) = plan(&index);
    assert_eq!(steps, pods, "all fit");
    let rate = f64::from(u32::try_from(pods).unwrap_or_default()) / took.as_secs_f64();
    println!("{pods} pods placed on {nodes} nodes in {took:.1?}: {rate:.0} pods/s");
}
