//! The policies that the tables compare, and the scheduler that each is asked by.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use divvy_api::annotation::PolicyName;
use divvy_simulate::cluster::Cluster;
use divvy_simulate::learning::Learning;
use divvy_simulate::policy::{Name, Policy, Scheduler, Ties};
use divvy_simulate::setup::{SHORTLIST, Setup};
use divvy_simulate::target::Target;
use divvy_simulate::workload::Workload;

/// A policy as it is asked.
pub(crate) struct Contender {
    pub(crate) says: &'static str,
    pub(crate) name: Name,
    under: Under,
    /// It sees what comes, and isn't told what will.
    learns: bool,
}

/// The scheduler.
#[derive(Clone, Copy)]
enum Under {
    /// One that asks a published policy about all nodes.
    AllNodes(Scheduler),
    /// Divvy's, or none, behind a scheduler that is set up so.
    Setup(Setup),
}

pub(crate) const OWN: Name = Name::Product(POLICY);
const POLICY: PolicyName = PolicyName::LeastFragmentation;
const FIXED: Scheduler = Scheduler { ties: Ties::Fixed, shortlist: SHORTLIST };
pub(crate) const RANDOM: Scheduler = Scheduler { ties: Ties::Random, ..FIXED };

pub(crate) const CONTENDERS: [Contender; 7] = [
    published("best-fit, fixed order", Name::BestFit, FIXED),
    published("packing, fixed order", Name::Packing, FIXED),
    published("random", Name::Random, FIXED),
    published("fgd, fixed order", Name::Fgd, FIXED),
    published("fgd, random ties", Name::Fgd, RANDOM),
    own("least-fragmentation, mix known", Setup::AllAsked, false),
    own("least-fragmentation, mix learned", Setup::AllAsked, true),
];

const IDEAL: Contender = own("ideal: all nodes, mix known", Setup::AllAsked, false);
const IN_TREE: Contender =
    Contender { says: "in-tree scores alone", name: Name::InTree, under: Under::Setup(Setup::InTree), learns: false };
const GATES: Contender = own("gates, mix known", Setup::Gates, false);
const SOFT_TAINTS: Contender = own("extender and soft taints, mix known", Setup::SOFT_TAINTS, false);

/// Under kube-scheduler as it comes, after what they could come to.
pub(crate) const STOCK_CONTENDERS: [Contender; 7] = [
    IDEAL,
    IN_TREE,
    GATES,
    own("gates, mix learned", Setup::Gates, true),
    own("extender, mix known", Setup::Extender, false),
    SOFT_TAINTS,
    own("extender and soft taints, mix learned", Setup::SOFT_TAINTS, true),
];

/// Where pods wait.
pub(crate) const WAITING_CONTENDERS: [Contender; 4] = [IDEAL, IN_TREE, GATES, SOFT_TAINTS];

const fn published(says: &'static str, name: Name, scheduler: Scheduler) -> Contender {
    Contender { says, name, under: Under::AllNodes(scheduler), learns: false }
}

const fn own(says: &'static str, setup: Setup, learns: bool) -> Contender {
    Contender { says, name: OWN, under: Under::Setup(setup), learns }
}

// === impl Contender ===

impl Contender {
    /// Whether nodes have soft taints.
    pub(crate) fn writes_taints(&self) -> bool {
        matches!(self.under, Under::Setup(Setup::Gates | Setup::SoftTaints { .. }))
    }

    /// The policy, for an empty cluster. It is told `target` unless it learns, and adds up its writes of soft taints in
    /// `writes`.
    pub(crate) fn policy<'a>(
        &self,
        workload: &Arc<Workload>,
        cluster: &Cluster,
        target: &'a Target,
        writes: &Arc<AtomicU64>,
    ) -> Box<dyn Policy + 'a> {
        let nothing = Target::default();
        let expected = if self.learns { &nothing } else { target };
        let policy = match self.under {
            Under::AllNodes(scheduler) => return self.name.policy(workload, cluster, target, scheduler),
            Under::Setup(setup) => setup.policy(POLICY, workload, cluster, expected, writes),
        };
        if self.learns { Box::new(Learning::new(workload, policy, None)) } else { policy }
    }
}
