//! Many runs, spread over the machine's cores.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rand::SeedableRng as _;
use rayon::prelude::*;

use crate::Rng;
use crate::cluster::Cluster;
use crate::fill::{self, Filled};
use crate::policy::{Name, Policy, Scheduler};
use crate::run::Run;
use crate::target::Target;
use crate::workload::Workload;

/// What is to be found out.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Each gets the same pods.
    pub policies: Vec<Name>,
    /// One run for each.
    pub seeds: Vec<u64>,
    /// Percent of the cards that pods ask for in the end.
    pub until: u32,
}

/// What came out of one run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Result of filling.
    pub filled: Filled,
    /// Duration of each decision, in ns.
    pub decisions: Vec<u32>,
}

/// What draws are for. Each has its own numbers, so that all policies see the same pods.
#[derive(Clone, Copy, Debug)]
pub enum Draw {
    /// The order of the hosts.
    Hosts,
    /// Which pods come.
    Pods,
    /// Between hosts that are equally good.
    Ties,
}

/// Makes a policy for an empty cluster.
pub type Maker<'a> = dyn Fn(&Cluster) -> Box<dyn Policy + 'a> + Sync + 'a;

/// Pods that come in all runs, about.
pub fn pods(workload: &Workload, settings: &Settings) -> u64 {
    let Settings { policies, seeds, until } = settings;
    let filling = workload.capacity() as f64 * f64::from(*until) / 100.0 / workload.mean_demand();
    filling as u64 * (policies.len() * seeds.len()) as u64
}

/// Runs by policy and seed, in the order of the settings; every policy is told what will come. `arrived` counts the pods
/// of all runs.
pub fn study(workload: &Arc<Workload>, settings: &Settings, arrived: &AtomicU64) -> Vec<Vec<Outcome>> {
    let Settings { policies, seeds, until } = settings;
    let target = Target::from_workload(workload);
    let filled = |name: &Name| {
        let policy =
            |cluster: &Cluster| -> Box<dyn Policy> { name.policy(workload, cluster, &target, Scheduler::RANDOM) };
        fill(workload, seeds, *until, arrived, &policy)
    };
    policies.par_iter().map(filled).collect()
}

/// Runs of one policy, by seed.
pub fn fill<'a>(
    workload: &'a Workload,
    seeds: &[u64],
    until: u32,
    arrived: &AtomicU64,
    policy: &Maker<'a>,
) -> Vec<Outcome> {
    let measure = Target::from_workload(workload);
    let run = |seed: &u64| {
        let arrivals = fill::arrivals(workload, until, &mut rng(*seed, Draw::Pods));
        let mut run = begin(workload, &measure, *seed, |cluster| policy(cluster));
        Outcome { filled: fill::fill(&mut run, &arrivals, until, arrived), decisions: run.decisions }
    };
    seeds.par_iter().map(run).collect()
}

/// A run whose cluster is empty; fragments are measured by `measure`.
pub fn begin<'a>(
    workload: &'a Workload,
    measure: &'a Target,
    seed: u64,
    policy: impl FnOnce(&Cluster) -> Box<dyn Policy + 'a>,
) -> Run<'a> {
    let cluster = Cluster::new(workload, &mut rng(seed, Draw::Hosts));
    let policy = policy(&cluster);
    Run::new(workload, cluster, policy, measure, rng(seed, Draw::Ties))
}

/// The numbers of one run for one purpose.
pub fn rng(seed: u64, draw: Draw) -> Rng {
    let mut all = Rng::seed_from_u64(seed);
    let mut purposes = [(); 3].map(|()| all.fork());
    purposes[draw as usize].fork()
}

#[cfg(test)]
mod tests;
