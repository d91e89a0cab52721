use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use divvy_simulate::cluster::{Cluster, Place};
use divvy_simulate::policy::{BestFit, Policy, Scored, Ties};
use divvy_simulate::workload::Arrival;

use super::*;
use crate::contenders::Contender;
use crate::fixture::workload;

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
    let target = Target::from_workload(workload);
    let cluster = Cluster::in_order(workload, 0..workload.machines.len());
    let mut run = Run::new(workload, cluster, Box::new(recorder), &target, rng(1, Draw::Ties));
    let churned = churn(&mut run, visits, unplaced, &AtomicU64::default());
    drop(run);
    Record { churned, tried: tried.into_inner(), placed: placed.into_inner(), ended: ended.into_inner() }
}

/// The small trace of the simulator's tests.
fn trace() -> Arc<Workload> {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/simulate/tests/trace").join(name);
    Arc::new(Workload::read(&file("nodes.csv"), &file("pods.csv")).expect("sound"))
}

#[test]
fn churn_is_measured_in_the_second_half() {
    let workload = workload(1, 1, &[(1000, 1, 1000)]);
    let visits = [2, 9, 3, 9, 9, 9].map(|until| Visit { kind: 0, until });
    // The first holds the card in ticks 0 and 1, the third in 2; the fourth in all of the second half.
    let Record { churned, .. } = churn_recorded(&workload, &visits, Unplaced::Dropped);
    assert_eq!((churned.allocated, churned.rejected.round(), churned.wait), (100.0, 67.0, 0.0));
}

#[test]
fn waiting_pod_is_placed_when_another_has_ended() {
    let workload = workload(1, 1, &[(1000, 1, 1000)]);
    let until = |tick: u64| [4, 3].get(tick as usize).copied().unwrap_or(tick + 1);
    let visits: Vec<Visit> = (0..40).map(|tick| Visit { kind: 0, until: until(tick) }).collect();
    let placed = churn_recorded(&workload, &visits, Unplaced::Waits).placed;
    // The pod of tick 1 has its two ticks from tick 4 on. The one of tick 3 was tried three times: not due at tick 7.
    assert_eq!(placed[..4], [(0, 0), (4, 1), (6, 2), (7, 6)]);
}

#[test]
fn waiting_pod_is_tried_at_growing_intervals_until_it_gives_up() {
    let workload = workload(1, 2, &[(1000, 1, 1000), (1000, 2, 1000)]);
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
        let visits = visits(&workload, 1.2, &mut rng(seed, Draw::Pods));
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
    let visits = visits(&workload, 1.5, &mut rng(1, Draw::Pods));
    let lifetimes: u64 = (0..).zip(&visits).map(|(tick, visit)| visit.until - tick).sum();
    let mean = lifetimes as f64 / visits.len() as f64;
    let load = mean * workload.mean_demand() / workload.capacity() as f64;
    assert!((1.3..1.7).contains(&load), "{load}");
    assert_eq!(visits.len(), ticks(&workload, 1.5) as usize);
}

#[test]
fn churn_depends_on_nothing_but_the_seed() {
    let workload = trace();
    let contender = Contender::named(Ties::Random).into_iter().find(|contender| contender.says == "fgd").expect("fgd");
    let load = (0.9, Unplaced::Dropped);
    let allocated = |seeds: &[u64]| contender.churn(&workload, seeds, load).0.allocated_pct_mean;
    assert_eq!(allocated(&[1, 2]).to_bits(), allocated(&[1, 2]).to_bits());
    assert_ne!(allocated(&[1]).to_bits(), allocated(&[2]).to_bits());
}
