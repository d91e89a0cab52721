//! Churn: pods come and go.
//!
//! One pod comes at each tick, drawn from the list; its lifetime is drawn from an exponential distribution whose mean
//! makes the pods that would be there at a time ask for ρ times the cluster's cards. A run begins with an empty cluster
//! and takes eight mean lifetimes; its second half is measured. As many pods come then as go, so that by Little's law the
//! part of the cards that is allocated is about ρ less what is rejected of it. In the first four lifetimes that isn't so:
//! a policy that rejected more of the first pods has more room for the next.
//!
//! A pod that doesn't fit is dropped, or waits as in kube-scheduler's queue, where a tick stands for a second: it is
//! tried again when a pod has ended, the oldest first, but not before its own backoff. Its lifetime begins when it is
//! placed. It gives up after a mean lifetime.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use divvy_simulate::Rng;
use divvy_simulate::report::mean_and_sd;
use divvy_simulate::run::Run;
use divvy_simulate::study::{Draw, Maker, begin, rng};
use divvy_simulate::target::Target;
use divvy_simulate::workload::Workload;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use rayon::prelude::*;
use serde::Serialize;

/// A pod that will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Number of its kind.
    pub kind: usize,
    /// The tick before which it goes.
    pub until: u64,
}

/// What a scheduler does with a pod that doesn't fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unplaced {
    /// Drops it.
    #[default]
    Dropped,
    /// Lets it wait, and tries it again.
    Waits,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Churned {
    /// Cards that pods hold, in percent of all, on average.
    pub allocated: f64,
    /// Requests of pods that were dropped, gave up or wait in the end, in percent of the requests of all.
    pub rejected: f64,
    /// Ticks from the arrival of a pod to its placement, on average over those that were placed.
    pub wait: f64,
}

/// What came out of one run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was measured.
    pub churned: Churned,
    /// Duration of each decision, in ns.
    pub decisions: Vec<u32>,
}

/// State of the cards while pods come and go; means and sample standard deviations over runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Report {
    /// Requests of the pods at a time, as a multiple of all cards.
    pub rho: f64,
    /// Allocated capacity, in percent of all cards.
    pub allocated_pct_mean: f64,
    /// Standard deviation of it.
    pub allocated_pct_sd: f64,
    /// Requests of rejected pods, in percent of the requests of all.
    pub rejected_demand_pct_mean: f64,
    /// Ticks from arrival to placement; `None` if pods that don't fit are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ticks_mean: Option<f64>,
}

/// A pod that is to be placed.
struct Pending {
    /// The tick at which it came.
    serial: u64,
    kind: usize,
    /// In ticks, from its placement on.
    lifetime: u64,
    /// The tick at which it was tried last.
    tried: u64,
    tries: u32,
}

/// What adds up to a measurement: of the pods that come in the second half, and of its ticks.
#[derive(Default)]
struct Sums {
    allocated: f64,
    /// Requests of all pods.
    wanted: f64,
    /// Requests of placed pods.
    given: f64,
    placed: u32,
    waited: u64,
}

/// Mean lifetimes that a run takes.
const LIFETIMES: f64 = 8.0;
/// `podInitialBackoffSeconds` doubles with every try, up to `podMaxBackoffSeconds`.
const FIRST_BACKOFF: u64 = 1;
const LONGEST_BACKOFF: u64 = 10;

/// Ticks that a pod lives on average.
fn mean_lifetime(workload: &Workload, load: f64) -> f64 {
    load * workload.capacity() as f64 / workload.mean_demand()
}

/// Number of pods that arrive in a run.
pub fn ticks(workload: &Workload, load: f64) -> u64 {
    (LIFETIMES * mean_lifetime(workload, load)).ceil() as u64
}

/// Runs of one policy, by seed. `arrived` counts the pods of all runs.
pub fn study<'a>(
    workload: &'a Workload,
    seeds: &[u64],
    (load, unplaced): (f64, Unplaced),
    arrived: &AtomicU64,
    policy: &Maker<'a>,
) -> Vec<Outcome> {
    let measure = Target::from_workload(workload);
    let run = |seed: &u64| {
        let visits = visits(workload, load, &mut rng(*seed, Draw::Pods));
        let mut run = begin(workload, &measure, *seed, |cluster| policy(cluster));
        let churned = churn(&mut run, &visits, unplaced, arrived);
        Outcome { churned, decisions: run.decisions }
    };
    seeds.par_iter().map(run).collect()
}

/// The pods of one run, one for each tick, that would together ask for `load` times the cluster's cards.
pub fn visits(workload: &Workload, load: f64, rng: &mut Rng) -> Vec<Visit> {
    let mean = mean_lifetime(workload, load);
    let visit = |tick| {
        let kind = *workload.pods.choose(rng)?;
        let lifetime = -mean * (1.0 - rng.random::<f64>()).ln();
        Some(Visit { kind, until: tick + 1 + lifetime as u64 })
    };
    (0..ticks(workload, load)).map_while(visit).collect()
}

/// Lets these pods come and go, and counts in `arrived` those that came.
pub fn churn(run: &mut Run<'_>, visits: &[Visit], unplaced: Unplaced, arrived: &AtomicU64) -> Churned {
    let (mut leaving, mut pending, mut sums) = (BTreeSet::new(), Vec::new(), Sums::default());
    let half = visits.len() as u64 / 2;
    let patience = match unplaced {
        Unplaced::Dropped => 0,
        Unplaced::Waits => (visits.len() as f64 / LIFETIMES) as u64,
    };
    let mut last_end = 0;
    for (tick, visit) in (0..).zip(visits) {
        arrived.fetch_add(1, Ordering::Relaxed);
        while let Some((_, serial)) = leaving.first().copied().filter(|(until, _)| *until <= tick) {
            leaving.pop_first();
            run.end(serial);
            last_end = tick;
        }
        run.tick();
        pending.push(Pending::new(tick, *visit));
        pending.retain_mut(|pod| {
            let is_placed = pod.is_due(tick, last_end) && pod.place(run, tick);
            if is_placed {
                leaving.insert((tick + pod.lifetime, pod.serial));
            }
            if is_placed && pod.serial >= half {
                sums.given += run.demand(pod.kind);
                sums.placed += 1;
                sums.waited += tick - pod.serial;
            }
            !is_placed && tick - pod.serial < patience
        });
        if tick >= half {
            sums.allocated += run.cluster().allocated();
            sums.wanted += run.demand(visit.kind);
        }
    }
    let ticks = (visits.len() as u64 - half).max(1) as f64;
    Churned {
        allocated: sums.allocated / ticks,
        rejected: 100.0 * (sums.wanted - sums.given) / f64::max(sums.wanted, 1.0),
        wait: sums.waited as f64 / f64::from(sums.placed.max(1)),
    }
}

// === impl Report ===

impl Report {
    /// Report of all runs of one policy.
    pub fn of((rho, unplaced): (f64, Unplaced), outcomes: &[Outcome]) -> Self {
        let figures = |figure: fn(&Churned) -> f64| {
            mean_and_sd(&outcomes.iter().map(|outcome| figure(&outcome.churned)).collect::<Vec<_>>())
        };
        let (allocated_pct_mean, allocated_pct_sd) = figures(|run| run.allocated);
        Self {
            rho,
            allocated_pct_mean,
            allocated_pct_sd,
            rejected_demand_pct_mean: figures(|run| run.rejected).0,
            wait_ticks_mean: (unplaced == Unplaced::Waits).then(|| figures(|run| run.wait).0),
        }
    }
}

// === impl Pending ===

impl Pending {
    fn new(tick: u64, Visit { kind, until }: Visit) -> Self {
        Self { serial: tick, kind, lifetime: until - tick, tried: tick, tries: 0 }
    }

    /// Whether it has just come, or a pod has ended since it was tried and its backoff is over.
    fn is_due(&self, tick: u64, last_end: u64) -> bool {
        self.tries == 0 || (last_end > self.tried && tick >= self.tried + backoff(self.tries))
    }

    fn place(&mut self, run: &mut Run<'_>, tick: u64) -> bool {
        (self.tried, self.tries) = (tick, self.tries + 1);
        run.offer(self.serial, self.kind)
    }
}

/// Ticks until a pod may be tried again that was tried so many times, at least once.
fn backoff(tries: u32) -> u64 {
    FIRST_BACKOFF.checked_shl(tries - 1).map_or(LONGEST_BACKOFF, |ticks| ticks.min(LONGEST_BACKOFF))
}

#[cfg(test)]
mod tests;
