//! Filling: pods come and never go, as in the published experiments.
//!
//! The list of pods is shuffled and then drawn from anew, until they have asked for as much as is wanted; a pod that doesn't
//! fit is dropped. What is measured at a load of L percent is the mean over all moments at which the demand so far, rounded
//! to whole percents of the cluster, is L.

use std::sync::atomic::{AtomicU64, Ordering};

use rand::seq::{IndexedRandom as _, SliceRandom as _};

use crate::Rng;
use crate::run::Run;
use crate::workload::Workload;

/// What was measured at every load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filled {
    /// By the load in percent, from 0 on; `None` where there was no such moment, as pods were too large.
    pub at: Vec<Option<Sample>>,
}

/// The cluster at one load, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Cards that pods hold, in percent of all.
    pub allocated: f64,
    /// Free capacity of no use to the expected requests, in percent of all cards.
    pub fragmented: f64,
}

/// What adds up to a sample.
#[derive(Clone, Copy, Default)]
struct Sums {
    allocated: f64,
    fragmented: f64,
    moments: u32,
}

/// The pods of one run, in order, as numbers of their kinds: until they have asked for `until` percent of the cards.
pub fn arrivals(workload: &Workload, until: u32, rng: &mut Rng) -> Vec<usize> {
    let mut pods = workload.pods.clone();
    pods.shuffle(rng);
    let wanted = workload.capacity() as f64 * f64::from(until) / 100.0;
    let mut demand = 0.0;
    let mut come = Vec::with_capacity(pods.len());
    let mut listed = pods.into_iter();
    while demand < wanted {
        let Some(kind) = listed.next().or_else(|| workload.pods.choose(rng).copied()) else { break };
        demand += workload.kinds[kind].demand();
        come.push(kind);
    }
    come
}

/// Offers these pods one by one, and counts them in `arrived`.
pub fn fill(run: &mut Run<'_>, arrivals: &[usize], until: u32, arrived: &AtomicU64) -> Filled {
    let mut at = vec![Sums::default(); until as usize + 1];
    let mut demand = 0.0;
    for (serial, kind) in (0..).zip(arrivals) {
        arrived.fetch_add(1, Ordering::Relaxed);
        run.tick();
        run.offer(serial, *kind);
        demand += run.demand(*kind);
        if let Some(sums) = at.get_mut(run.cluster().percent(demand).round() as usize) {
            sums.allocated += run.cluster().allocated();
            sums.fragmented += run.fragmented();
            sums.moments += 1;
        }
    }
    Filled { at: at.into_iter().map(Sums::average).collect() }
}

// === impl Sums ===

impl Sums {
    fn average(self) -> Option<Sample> {
        let moments = f64::from(self.moments);
        let sample = || Sample { allocated: self.allocated / moments, fragmented: self.fragmented / moments };
        (self.moments > 0).then(sample)
    }
}
