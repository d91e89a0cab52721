use std::path::Path;

use divvy_api::annotation::PolicyName;

use super::*;
use crate::fill::Sample;
use crate::policy::{BestFit, Scored, Ties};
use crate::report::{Quantiles, Report};
use crate::trace::{TraceNode, TracePod};

/// One node with so many cards, and pods of one card.
fn one_node(cards: u32, pods: usize) -> Arc<Workload> {
    let node = TraceNode { name: "n".into(), cpu: 8000, memory: 8192, cards, model: "T4".into() };
    let pod = TracePod { cpu: 1000, memory: 1024, cards: 1, milli: 1000, ..TracePod::default() };
    Arc::new(Workload::new(&[node], &vec![pod; pods]).expect("cards and pods"))
}

fn run<'a>(workload: &'a Workload, target: &'a Target) -> Run<'a> {
    let cluster = Cluster::in_order(workload, 0..workload.machines.len());
    Run::new(workload, cluster, Box::new(Scored::new(BestFit, Ties::Fixed, workload)), target, rng(1, Draw::Ties))
}

/// The trace in `tests/trace`.
fn trace() -> Arc<Workload> {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace").join(name);
    Arc::new(Workload::read(&file("nodes.csv"), &file("pods.csv")).expect("sound"))
}

fn settings(policies: &[Name]) -> Settings {
    Settings { policies: policies.to_vec(), seeds: vec![1, 2], until: 100 }
}

#[test]
fn pods_are_redrawn_until_the_load_is_reached() {
    let workload = one_node(4, 4);
    assert_eq!(fill::arrivals(&workload, 130, &mut rng(1, Draw::Pods)).len(), 6, "5.2 cards take 6 pods");
    assert_eq!(fill::arrivals(&workload, 50, &mut rng(1, Draw::Pods)).len(), 2);
    let mut of_trace = fill::arrivals(&trace(), 500, &mut rng(1, Draw::Pods));
    let mut listed = trace().pods.clone();
    of_trace.truncate(listed.len());
    assert_ne!(of_trace, listed, "the order is drawn");
    of_trace.sort_unstable();
    listed.sort_unstable();
    assert_eq!(of_trace, listed, "all that are listed come before any comes again");
}

#[test]
fn sample_at_a_load_is_the_mean_while_the_load_rounds_to_it() {
    let workload = one_node(4, 4);
    let arrivals = [0; 6];
    let filled =
        fill::fill(&mut run(&workload, &Target::from_workload(&workload)), &arrivals, 130, &AtomicU64::default());
    let allocated = |load: usize| filled.at[load].map(|sample| sample.allocated);
    assert_eq!([25, 50, 100, 125].map(allocated), [Some(25.0), Some(50.0), Some(100.0), Some(100.0)]);
    assert_eq!([24, 101, 130].map(allocated), [None; 3]);
    let workload = one_node(32, 4);
    let filled =
        fill::fill(&mut run(&workload, &Target::from_workload(&workload)), &[0; 8], 100, &AtomicU64::default());
    // No CPU is left after the eighth pod, so all that is free is a fragment.
    assert_eq!(filled.at[25], Some(Sample { allocated: 25.0, fragmented: 75.0 }));
}

#[test]
fn outcomes_depend_on_nothing_but_the_seed() {
    let policies = [Name::BestFit, Name::Product(PolicyName::LeastFragmentation)];
    let (workload, settings) = (trace(), settings(&policies));
    let study = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let outcomes = pool.install(|| study(&workload, &settings, &AtomicU64::default()));
        outcomes.into_iter().flatten().map(|outcome| outcome.filled).collect::<Vec<_>>()
    };
    let (one, three) = (study(1), study(3));
    assert_eq!(one, three);
    assert_ne!(one[0], one[1], "seeds differ");
}

#[test]
fn report_json_matches_snapshot() {
    let workload = one_node(4, 4);
    let settings = Settings { until: 50, ..settings(&[Name::BestFit, Name::Product(PolicyName::Binpack)]) };
    let outcomes = study(&workload, &settings, &AtomicU64::default());
    let mut report = Report::new(&workload, &settings, &outcomes);
    for policy in &mut report.policies {
        policy.at.retain(|at| at.arrived_pct > 25);
        policy.decision_us = Quantiles { p50: 1.5, p99: 2.25 };
    }
    insta::assert_json_snapshot!(report);
}
