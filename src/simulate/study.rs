//! Many runs, spread over the machine's cores, and what they say together.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rand::SeedableRng as _;
use rayon::prelude::*;

use crate::Rng;
use crate::churn::{self, Churned, Unplaced};
use crate::cluster::Cluster;
use crate::fill::{self, Filled};
use crate::kube_scheduler::KubeScheduler;
use crate::policy::{BestFit, Fgd, Name, Packing, Policy, Product, Random, Scheduler, Scored};
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
    /// Percent of the cards that pods ask for in the end; 0: no filling.
    pub until: u32,
    /// Cards that pods ask for at a time, as a part of all, while they come and go; `None`: no churn.
    pub churn: Option<f64>,
    /// What happens to pods that don't fit while others come and go.
    pub unplaced: Unplaced,
    /// Between all these policies and the pods.
    pub scheduler: Scheduler,
}

/// What came out of one run of each protocol.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Result of filling.
    pub filled: Filled,
    /// Result of churn.
    pub churned: Option<Churned>,
    /// Duration of each decision, in ns.
    pub decisions: Vec<u32>,
}

/// Pods that come in all runs, about.
pub fn pods(workload: &Workload, settings: &Settings) -> u64 {
    let Settings { policies, seeds, until, churn, .. } = settings;
    let filling = workload.capacity() as f64 * f64::from(*until) / 100.0 / workload.mean_demand();
    let churning = churn.map_or(0, |load| churn::ticks(workload, load));
    (filling as u64 + churning) * (policies.len() * seeds.len()) as u64
}

/// What draws are for. Each has its own numbers, so that all policies see the same pods.
#[derive(Clone, Copy)]
enum Draw {
    Hosts,
    Pods,
    Ties,
}

/// Runs by policy and seed, in the order of the settings; every policy is told what will come. `arrived` counts the pods
/// of all runs.
pub fn study(workload: &Arc<Workload>, settings: &Settings, arrived: &AtomicU64) -> Vec<Vec<Outcome>> {
    let target = Target::of(workload);
    study_with(workload, settings, arrived, &|name, cluster| {
        name.policy(workload, cluster, &target, settings.scheduler)
    })
}

/// Makes a policy of its name, for an empty cluster.
pub type Maker<'a> = dyn Fn(Name, &Cluster) -> Box<dyn Policy + 'a> + Sync + 'a;

/// Runs by policy and seed of policies that `policy` makes.
pub fn study_with<'a>(
    workload: &'a Workload,
    settings: &'a Settings,
    arrived: &'a AtomicU64,
    policy: &'a Maker<'a>,
) -> Vec<Vec<Outcome>> {
    let Settings { policies, seeds, .. } = settings;
    let study = Study { workload, policy, measure: Target::of(workload), settings, arrived };
    let jobs: Vec<(Name, u64)> =
        policies.iter().flat_map(|name| seeds.iter().map(move |seed| (*name, *seed))).collect();
    let outcomes: Vec<Outcome> = jobs.into_par_iter().map(|(name, seed)| study.run(name, seed)).collect();
    outcomes.chunks(seeds.len().max(1)).map(<[Outcome]>::to_vec).collect()
}

struct Study<'a> {
    workload: &'a Workload,
    policy: &'a Maker<'a>,
    measure: Target,
    settings: &'a Settings,
    arrived: &'a AtomicU64,
}

// === impl Name ===

impl Name {
    /// The policy, for an empty cluster to which pods come as `target` says.
    pub fn policy<'a>(
        self,
        workload: &Arc<Workload>,
        cluster: &Cluster,
        target: &'a Target,
        scheduler: Scheduler,
    ) -> Box<dyn Policy + 'a> {
        let ties = scheduler.ties;
        match self {
            Self::InTree => Box::new(KubeScheduler::new(workload, None, 0, None)),
            Self::BestFit => Box::new(Scored::new(BestFit, ties, workload)),
            Self::Packing => Box::new(Scored::new(Packing, ties, workload)),
            Self::Random => Box::new(Random::new(workload)),
            Self::Fgd => Box::new(Scored::new(Fgd::new(target), ties, workload)),
            Self::Product(name) => Box::new(Product::new(name, workload, cluster, target, scheduler)),
        }
    }
}

// === impl Study ===

impl Study<'_> {
    fn run(&self, name: Name, seed: u64) -> Outcome {
        let Self { workload, settings, arrived, .. } = self;
        let mut outcome = Outcome::default();
        if settings.until > 0 {
            let arrivals = fill::arrivals(workload, settings.until, &mut rng(seed, Draw::Pods));
            let mut run = self.begin(name, seed);
            outcome.filled = fill::fill(&mut run, &arrivals, settings.until, arrived);
            outcome.decisions.append(&mut run.decisions);
        }
        if let Some(load) = settings.churn {
            let visits = churn::visits(workload, load, &mut rng(seed, Draw::Pods));
            let mut run = self.begin(name, seed);
            outcome.churned = Some(churn::churn(&mut run, &visits, settings.unplaced, arrived));
            outcome.decisions.append(&mut run.decisions);
        }
        outcome
    }

    fn begin(&self, name: Name, seed: u64) -> Run<'_> {
        let cluster = Cluster::new(self.workload, &mut rng(seed, Draw::Hosts));
        let policy = (self.policy)(name, &cluster);
        Run::new(self.workload, cluster, policy, &self.measure, rng(seed, Draw::Ties))
    }
}

/// The numbers of one run for one purpose.
fn rng(seed: u64, draw: Draw) -> Rng {
    let mut all = Rng::seed_from_u64(seed);
    let mut purposes = [(); 3].map(|()| all.fork());
    purposes[draw as usize].fork()
}

#[cfg(test)]
mod tests;
