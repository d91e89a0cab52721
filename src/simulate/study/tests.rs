use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use divvy_api::annotation::PolicyName;

use super::*;
use crate::churn::Visit;
use crate::cluster::Place;
use crate::fill::Sample;
use crate::policy::{BestFit, Scored, Ties};
use crate::report::{Quantiles, Report};
use crate::trace::{TraceNode, TracePod};
use crate::workload::Arrival;

/// One node with so many cards, and pods of one card.
fn one_node(cards: u32, pods: usize) -> Arc<Workload> {
    let node = TraceNode { name: "n".into(), cpu: 8000, memory: 8192, cards, model: "T4".into() };
    let pod = TracePod { cpu: 1000, memory: 1024, cards: 1, milli: 1000, ..TracePod::default() };
    Arc::new(Workload::new(&[node], &vec![pod; pods]).expect("cards and pods"))
}

fn run<'a>(workload: &'a Workload, target: &'a Target) -> Run<'a> {
    run_of(workload, target, Box::new(Scored::new(BestFit, Ties::Fixed, workload)))
}

fn run_of<'a>(workload: &'a Workload, target: &'a Target, policy: Box<dyn Policy + 'a>) -> Run<'a> {
    let cluster = Cluster::in_order(workload, 0..workload.machines.len());
    Run::new(workload, cluster, policy, target, rng(1, Draw::Ties))
}

/// Best fit that remembers what it was told, each with its tick and the serial number of the pod.
struct Recorder<'a> {
    policy: Scored<BestFit>,
    /// The next tick.
    tick: u64,
    tried: &'a RefCell<Vec<(u64, u64)>>,
    placed: &'a RefCell<Vec<(u64, u64)>>,
    /// Those that had ended before the tick.
    ended: &'a RefCell<Vec<(u64, u64)>>,
}

/// What a [`Recorder`] remembers of a run.
struct Record {
    churned: Churned,
    tried: Vec<(u64, u64)>,
    placed: Vec<(u64, u64)>,
    ended: Vec<(u64, u64)>,
}

impl Policy for Recorder<'_> {
    fn choose(&mut self, cluster: &Cluster, pod: Arrival, rng: &mut Rng) -> Option<Place> {
        self.tried.borrow_mut().push((self.tick - 1, pod.serial));
        let place = self.policy.choose(cluster, pod, rng)?;
        self.placed.borrow_mut().push((self.tick - 1, pod.serial));
        Some(place)
    }

    fn ended(&mut self, pod: Arrival) {
        self.ended.borrow_mut().push((self.tick, pod.serial));
    }

    fn tick(&mut self, _: &Cluster) {
        self.tick += 1;
    }
}

fn churn_recorded(workload: &Workload, visits: &[Visit], unplaced: Unplaced) -> Record {
    let [tried, placed, ended] = Default::default();
    let policy = Scored::new(BestFit, Ties::Fixed, workload);
    let recorder = Recorder { policy, tick: 0, tried: &tried, placed: &placed, ended: &ended };
    let target = Target::of(workload);
    let mut run = run_of(workload, &target, Box::new(recorder));
    let churned = churn::churn(&mut run, visits, unplaced, &AtomicU64::default());
    drop(run);
    Record { churned, tried: tried.into_inner(), placed: placed.into_inner(), ended: ended.into_inner() }
}

/// The trace in `tests/trace`.
fn trace() -> Arc<Workload> {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace").join(name);
    Arc::new(Workload::read(&file("nodes.csv"), &file("pods.csv")).expect("sound"))
}

fn settings(policies: &[Name]) -> Settings {
    Settings {
        policies: policies.to_vec(),
        seeds: vec![1, 2],
        until: 100,
        churn: Some(0.6),
        unplaced: Unplaced::Dropped,
        scheduler: Scheduler { ties: Ties::Random, shortlist: 16 },
    }
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
    let filled = fill::fill(&mut run(&workload, &Target::of(&workload)), &arrivals, 130, &AtomicU64::default());
    let allocated = |load: usize| filled.at[load].map(|sample| sample.allocated);
    assert_eq!([25, 50, 100, 125].map(allocated), [Some(25.0), Some(50.0), Some(100.0), Some(100.0)]);
    assert_eq!([24, 101, 130].map(allocated), [None; 3]);
    let workload = one_node(32, 4);
    let filled = fill::fill(&mut run(&workload, &Target::of(&workload)), &[0; 8], 100, &AtomicU64::default());
    // No CPU is left after the eighth pod, so all that is free is a fragment.
    assert_eq!(filled.at[25], Some(Sample { allocated: 25.0, fragmented: 75.0 }));
}

#[test]
fn churn_is_measured_in_the_second_half() {
    let workload = one_node(1, 1);
    let visits = [2, 9, 3, 9, 9, 9].map(|until| Visit { kind: 0, until });
    // The first holds the card in ticks 0 and 1, the third in 2; the fourth in all of the second half.
    let Record { churned, .. } = churn_recorded(&workload, &visits, Unplaced::Dropped);
    assert_eq!((churned.allocated, churned.rejected.round(), churned.wait), (100.0, 67.0, 0.0));
}

#[test]
fn waiting_pod_is_placed_when_another_has_ended() {
    let workload = one_node(1, 1);
    let until = |tick: u64| [4, 3].get(tick as usize).copied().unwrap_or(tick + 1);
    let visits: Vec<Visit> = (0..40).map(|tick| Visit { kind: 0, until: until(tick) }).collect();
    let placed = churn_recorded(&workload, &visits, Unplaced::Waits).placed;
    // The pod of tick 1 has its two ticks from tick 4 on. The one of tick 3 was tried three times: not due at tick 7.
    assert_eq!(placed[..4], [(0, 0), (4, 1), (6, 2), (7, 6)]);
}

#[test]
fn waiting_pod_is_tried_at_growing_intervals_until_it_gives_up() {
    let workload = crate::fixture::workload(1, 2, &[(1000, 1, 1000), (1000, 2, 1000)]);
    // One pod keeps a card, pods of one tick take turns on the other, and the pod of tick 1 wants both.
    let visit = |tick: u64| Visit { kind: usize::from(tick == 1), until: if tick == 0 { 1000 } else { tick + 1 } };
    let visits: Vec<Visit> = (0..400).map(visit).collect();
    let tried = churn_recorded(&workload, &visits, Unplaced::Waits).tried;
    let ticks: Vec<u64> = tried.into_iter().filter(|(_, serial)| *serial == 1).map(|(tick, _)| tick).collect();
    assert_eq!(ticks, [1, 3, 5, 9, 17, 27, 37, 47], "a mean lifetime of 50 ticks");
}

#[test]
fn every_pod_is_placed_once_or_rejected() {
    let workload = trace();
    for (seed, unplaced) in [(1, Unplaced::Waits), (2, Unplaced::Waits), (1, Unplaced::Dropped)] {
        let visits = churn::visits(&workload, 1.2, &mut rng(seed, Draw::Pods));
        let Record { churned, placed, ended, .. } = churn_recorded(&workload, &visits, unplaced);
        let placed_at: BTreeMap<u64, u64> = placed.iter().map(|(tick, serial)| (*serial, *tick)).collect();
        assert_eq!(placed_at.len(), placed.len(), "none is placed twice");
        let lives = |(tick, serial): &(u64, u64)| tick - placed_at[serial] == visits[*serial as usize].until - serial;
        assert!(ended.iter().all(lives), "lifetimes begin with the placement");
        let half = visits.len() as u64 / 2;
        let demand = |serial: u64| workload.kinds[visits[serial as usize].kind].demand();
        let wanted: f64 = (half..visits.len() as u64).map(demand).sum();
        let given: f64 = placed_at.range(half..).map(|(serial, _)| demand(*serial)).sum();
        assert!((churned.rejected - 100.0 * (wanted - given) / wanted).abs() < 1e-9);
        assert_eq!(churned.wait > 0.0, unplaced == Unplaced::Waits);
        assert!((1.0..60.0).contains(&churned.rejected), "{churned:?}");
    }
}

#[test]
fn lifetimes_give_the_requested_churn_load() {
    let workload = trace();
    let visits = churn::visits(&workload, 1.5, &mut rng(1, Draw::Pods));
    let lifetimes: u64 = (0..).zip(&visits).map(|(tick, visit)| visit.until - tick).sum();
    let mean = lifetimes as f64 / visits.len() as f64;
    let load = mean * workload.mean_demand() / workload.capacity() as f64;
    assert!((1.3..1.7).contains(&load), "{load}");
    assert_eq!(visits.len(), churn::ticks(&workload, 1.5) as usize);
}

#[test]
fn outcomes_depend_on_nothing_but_the_seed() {
    let policies = [Name::Random, Name::Fgd, Name::Product(PolicyName::LeastFragmentation)];
    let (workload, settings) = (trace(), settings(&policies));
    let study = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let outcomes = pool.install(|| study(&workload, &settings, &AtomicU64::default()));
        let figures = |outcome: Outcome| (outcome.filled, outcome.churned);
        outcomes.into_iter().flatten().map(figures).collect::<Vec<_>>()
    };
    let (one, three) = (study(1), study(3));
    assert_eq!(one, three);
    assert_ne!(one[0], one[1], "seeds differ");
}

#[test]
fn report_json_matches_snapshot() {
    let workload = one_node(4, 4);
    let settings = Settings { until: 50, ..settings(&[Name::BestFit, Name::Fgd]) };
    let outcomes = study(&workload, &settings, &AtomicU64::default());
    let mut report = Report::of(&workload, &settings, &outcomes);
    for policy in &mut report.policies {
        policy.at.retain(|at| at.arrived_pct > 25);
        policy.decision_us = Quantiles { p50: 1.5, p99: 2.25 };
    }
    insta::assert_json_snapshot!(report);
}
