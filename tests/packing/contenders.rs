//! The policies that the tables compare, and the scheduler that each is asked by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use divvy_api::annotation::PolicyName;
use divvy_simulate::cluster::Cluster;
use divvy_simulate::policy::{Name, Policy, Ties};
use divvy_simulate::report::{PolicyReport, Quantiles};
use divvy_simulate::study;
use divvy_simulate::target::Target;
use divvy_simulate::workload::Workload;

use crate::churn::{self, Unplaced};
use crate::learning::Learning;
use crate::published::Published;
use crate::setup::Setup;

/// A policy as it is asked.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// The name of its row.
    pub says: &'static str,
    under: Under,
    told: Told,
}

/// The scheduler.
#[derive(Clone, Copy, Debug)]
enum Under {
    /// One that asks a published policy about all nodes.
    AllNodes(Published, Ties),
    /// One of Divvy's, or none, behind a scheduler that is set up so.
    Setup(Setup, PolicyName),
}

/// What a policy knows of the pods that will come.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// All.
    All,
    /// Nothing: it learns from those that come, in a process that is restarted after so many.
    Nothing { restarts_after: Option<u64> },
}

const POLICY: PolicyName = PolicyName::LeastFragmentation;

/// Asked about all nodes.
pub const CONTENDERS: [Contender; 7] = [
    published("best-fit, fixed order", Published::BestFit, Ties::Fixed),
    published("packing, fixed order", Published::Packing, Ties::Fixed),
    published("random", Published::Random, Ties::Fixed),
    published("fgd, fixed order", Published::Fgd, Ties::Fixed),
    published("fgd, random ties", Published::Fgd, Ties::Random),
    own("least-fragmentation, mix known", Setup::ALL_ASKED),
    learning("least-fragmentation, mix learned", Setup::ALL_ASKED),
];

const IDEAL: Contender = own("ideal: all nodes, mix known", Setup::ALL_ASKED);
const IN_TREE: Contender = own("in-tree scores alone", Setup::InTree);
const GATES: Contender = own("gates, mix known", Setup::Gates);
const SOFT_TAINTS: Contender = own("extender and soft taints, mix known", Setup::SOFT_TAINTS);

/// Under kube-scheduler as it comes, after what they could come to.
pub const STOCK_CONTENDERS: [Contender; 7] = [
    IDEAL,
    IN_TREE,
    GATES,
    learning("gates, mix learned", Setup::Gates),
    own("extender, mix known", Setup::Extender),
    SOFT_TAINTS,
    learning("extender and soft taints, mix learned", Setup::SOFT_TAINTS),
];

/// Where pods wait.
pub const WAITING_CONTENDERS: [Contender; 4] = [IDEAL, IN_TREE, GATES, SOFT_TAINTS];

const fn published(says: &'static str, policy: Published, ties: Ties) -> Contender {
    Contender { says, under: Under::AllNodes(policy, ties), told: Told::All }
}

const fn own(says: &'static str, setup: Setup) -> Contender {
    Contender { says, under: Under::Setup(setup, POLICY), told: Told::All }
}

const fn learning(says: &'static str, setup: Setup) -> Contender {
    Contender { told: Told::Nothing { restarts_after: None }, ..own(says, setup) }
}

// === impl Contender ===

impl Contender {
    /// All that have a name on the command line, the published ones first; asked about all nodes, but for `in-tree`.
    pub fn named(ties: Ties) -> Vec<Self> {
        let all = [Published::BestFit, Published::Packing, Published::Random, Published::Fgd];
        let all = all.map(|policy| published(policy.as_str(), policy, ties));
        let products = Name::ALL.into_iter().filter_map(|name| {
            let Name::Product(policy) = name else { return None };
            let under = Under::Setup(Setup::AllAsked { ties }, policy);
            Some(Self { says: name.as_str(), under, told: Told::All })
        });
        let in_tree = Self { says: "in-tree", ..IN_TREE };
        all.into_iter().chain(products).chain([in_tree]).collect()
    }

    /// Fills an empty cluster for each seed. With the writes of soft taints a pod.
    pub fn fill(&self, workload: &Arc<Workload>, seeds: &[u64], until: u32) -> (PolicyReport, f64) {
        let (target, arrived, writes) = (Target::from_workload(workload), AtomicU64::default(), Arc::default());
        let policy = |cluster: &Cluster| self.policy(workload, cluster, &target, &writes);
        let outcomes = study::fill(workload, seeds, until, &arrived, &policy);
        (PolicyReport::new(self.says, until, &outcomes), ratio(&writes, &arrived))
    }

    /// Lets pods come to an empty cluster and go, for each seed. With the writes of soft taints a pod.
    pub fn churn(
        &self,
        workload: &Arc<Workload>,
        seeds: &[u64],
        load: (f64, Unplaced),
    ) -> (churn::Report, Quantiles, f64) {
        let (target, arrived, writes) = (Target::from_workload(workload), AtomicU64::default(), Arc::default());
        let policy = |cluster: &Cluster| self.policy(workload, cluster, &target, &writes);
        let outcomes = churn::study(workload, seeds, load, &arrived, &policy);
        let took = Quantiles::from_durations(outcomes.iter().flat_map(|outcome| &outcome.decisions).copied());
        (churn::Report::of(load, &outcomes), took, ratio(&writes, &arrived))
    }

    /// Divvy's default policy, which learns what comes, in a process that is restarted after so many pods.
    pub fn restarted(after: Option<u64>) -> Self {
        Self { told: Told::Nothing { restarts_after: after }, ..own("restarted", Setup::ALL_ASKED) }
    }

    /// Whether nodes have soft taints.
    pub fn writes_taints(&self) -> bool {
        matches!(self.under, Under::Setup(Setup::Gates | Setup::SoftTaints { .. }, _))
    }

    /// The policy, for an empty cluster. It is told `target` unless it learns, and adds up its writes of soft taints in
    /// `writes`.
    pub fn policy<'a>(
        &self,
        workload: &Arc<Workload>,
        cluster: &Cluster,
        target: &'a Target,
        writes: &Arc<AtomicU64>,
    ) -> Box<dyn Policy + 'a> {
        let (setup, name) = match self.under {
            Under::AllNodes(policy, ties) => return policy.policy(workload, target, ties),
            Under::Setup(setup, name) => (setup, name),
        };
        match self.told {
            Told::All => setup.policy(name, workload, cluster, target, writes),
            Told::Nothing { restarts_after } => {
                let policy = setup.policy(name, workload, cluster, &Target::default(), writes);
                Box::new(Learning::new(workload, policy, restarts_after))
            }
        }
    }
}

fn ratio(writes: &AtomicU64, pods: &AtomicU64) -> f64 {
    writes.load(Ordering::Relaxed) as f64 / pods.load(Ordering::Relaxed).max(1) as f64
}
