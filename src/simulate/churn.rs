//! Churn: pods come and go.
//!
//! One pod comes at each tick, drawn from the list; its lifetime is drawn from an exponential distribution whose mean makes
//! the pods that would be there at a time ask for ρ times the cluster's cards. A pod that doesn't fit is dropped. A run
//! begins with an empty cluster and takes four mean lifetimes; its second half is measured.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

use crate::Rng;
use crate::run::Run;
use crate::workload::Workload;

/// A pod that will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Number of its kind.
    pub kind: usize,
    /// The tick before which it goes.
    pub until: u64,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Churned {
    /// Cards that pods hold, in percent of all, on average.
    pub allocated: f64,
    /// Requests of dropped pods, in percent of the requests of all.
    pub rejected: f64,
}

/// Mean lifetimes that a run takes.
const LIFETIMES: f64 = 4.0;

/// Ticks that a pod lives on average.
fn mean_lifetime(workload: &Workload, load: f64) -> f64 {
    load * workload.capacity() as f64 / workload.mean_demand()
}

/// Number of pods that arrive in a run.
pub fn ticks(workload: &Workload, load: f64) -> u64 {
    (LIFETIMES * mean_lifetime(workload, load)).ceil() as u64
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
pub fn churn(run: &mut Run<'_>, visits: &[Visit], arrived: &AtomicU64) -> Churned {
    let mut leaving = BTreeSet::new();
    let (mut allocated, mut wanted, mut rejected) = (0.0, 0.0, 0.0);
    let half = visits.len() as u64 / 2;
    for (tick, Visit { kind, until }) in (0..).zip(visits) {
        arrived.fetch_add(1, Ordering::Relaxed);
        while let Some((_, serial)) = leaving.first().copied().filter(|(until, _)| *until <= tick) {
            leaving.pop_first();
            run.end(serial);
        }
        let is_placed = run.offer(tick, *kind);
        if is_placed {
            leaving.insert((*until, tick));
        }
        if tick >= half {
            allocated += run.cluster().allocated();
            wanted += run.demand(*kind);
            rejected += if is_placed { 0.0 } else { run.demand(*kind) };
        }
    }
    let measured = (visits.len() as u64 - half).max(1) as f64;
    Churned { allocated: allocated / measured, rejected: 100.0 * rejected / f64::max(wanted, 1.0) }
}
