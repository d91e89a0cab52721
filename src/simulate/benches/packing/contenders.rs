//! The policies that the tables compare, and the scheduler that each is asked by.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use divvy_api::annotation::PolicyName;
use divvy_simulate::cluster::Cluster;
use divvy_simulate::extender::Extender;
use divvy_simulate::kube_scheduler::{KubeScheduler, SoftTaints};
use divvy_simulate::policy::{Name, Policy, Product, Scheduler, Ties};
use divvy_simulate::target::Target;
use divvy_simulate::workload::Workload;

use crate::learning::Learning;

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
    /// One that asks about all nodes.
    AllNodes(Scheduler),
    /// kube-scheduler without an extender,
    KubeScheduler,
    /// with Divvy's,
    Extender,
    /// and with soft taints.
    SoftTaints,
}

pub(crate) const OWN: Name = Name::Product(POLICY);
const POLICY: PolicyName = PolicyName::LeastFragmentation;
const FIXED: Scheduler = Scheduler { ties: Ties::Fixed, shortlist: 16 };
pub(crate) const RANDOM: Scheduler = Scheduler { ties: Ties::Random, ..FIXED };
/// Pods between two writes of one node's taints: a pod comes each second, and the webhook writes a node every 30 s at
/// most.
const TAINT_PAUSE: u64 = 30;

pub(crate) const CONTENDERS: [Contender; 7] = [
    published("best-fit, fixed order", Name::BestFit, FIXED),
    published("packing, fixed order", Name::Packing, FIXED),
    published("random", Name::Random, FIXED),
    published("fgd, fixed order", Name::Fgd, FIXED),
    published("fgd, random ties", Name::Fgd, RANDOM),
    own("least-fragmentation, mix known", Under::AllNodes(RANDOM), false),
    own("least-fragmentation, mix learned", Under::AllNodes(RANDOM), true),
];

const IDEAL: Contender = own("ideal: all nodes, mix known", Under::AllNodes(RANDOM), false);
const IN_TREE: Contender =
    Contender { says: "in-tree scores alone", name: Name::InTree, under: Under::KubeScheduler, learns: false };
const SOFT_TAINTS: Contender = own("extender and soft taints, mix known", Under::SoftTaints, false);

/// Under kube-scheduler as it comes, after what they could come to.
pub(crate) const STOCK_CONTENDERS: [Contender; 5] = [
    IDEAL,
    IN_TREE,
    own("extender, mix known", Under::Extender, false),
    SOFT_TAINTS,
    own("extender and soft taints, mix learned", Under::SoftTaints, true),
];

/// Where pods wait.
pub(crate) const WAITING_CONTENDERS: [Contender; 3] = [IDEAL, IN_TREE, SOFT_TAINTS];

const fn published(says: &'static str, name: Name, scheduler: Scheduler) -> Contender {
    Contender { says, name, under: Under::AllNodes(scheduler), learns: false }
}

const fn own(says: &'static str, under: Under, learns: bool) -> Contender {
    Contender { says, name: OWN, under, learns }
}

// === impl Contender ===

impl Contender {
    /// Whether nodes have soft taints.
    pub(crate) fn writes_taints(&self) -> bool {
        matches!(self.under, Under::SoftTaints)
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
        let extender = || Some(Extender::new(POLICY, workload, cluster, expected));
        let kube_scheduler =
            |extender, soft_taints| Box::new(KubeScheduler::new(workload, extender, RANDOM.shortlist, soft_taints));
        let policy: Box<dyn Policy> = match self.under {
            Under::AllNodes(scheduler) if self.name == OWN => {
                Box::new(Product::new(POLICY, workload, cluster, expected, scheduler))
            }
            Under::AllNodes(scheduler) => return self.name.policy(workload, cluster, target, scheduler),
            Under::KubeScheduler => kube_scheduler(None, None),
            Under::Extender => kube_scheduler(extender(), None),
            Under::SoftTaints => {
                let soft_taints = SoftTaints::every(TAINT_PAUSE).counted(Arc::clone(writes));
                kube_scheduler(extender(), Some(soft_taints))
            }
        };
        if self.learns { Box::new(Learning::new(workload, policy, None)) } else { policy }
    }
}
