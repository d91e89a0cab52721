//! How the scheduler is set up, and Divvy beside it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use divvy_api::annotation::PolicyName;
use divvy_simulate::cluster::Cluster;
use divvy_simulate::extender::Extender;
use divvy_simulate::policy::{Policy, Product, SHORTLIST, Scheduler, Ties};
use divvy_simulate::target::Target;
use divvy_simulate::workload::Workload;

use crate::kube_scheduler::{KubeScheduler, SoftTaints};

/// Who is asked about which pods and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// The extender, about all nodes and about pods without GPUs too: what the others could come to.
    AllAsked {
        /// Between nodes that are equally good.
        ties: Ties,
    },
    /// kube-scheduler alone.
    InTree,
    /// kube-scheduler, which binds pods with GPUs where the leader plans them, with soft taints on nodes.
    Gates,
    /// kube-scheduler with the extender,
    Extender,
    /// and with soft taints on nodes.
    SoftTaints {
        /// While the webhook writes them, by the clock.
        pods_per_second: u32,
    },
}

// === impl Setup ===

impl Setup {
    /// All nodes, ties at random as in kube-scheduler.
    pub const ALL_ASKED: Self = Self::AllAsked { ties: Ties::Random };
    /// Soft taints where a pod comes each second.
    pub const SOFT_TAINTS: Self = Self::SoftTaints { pods_per_second: 1 };

    /// The scheduler and the extender for an empty cluster, where the extender's policy of this name is told `expected`.
    /// Writes of soft taints add up in `writes`.
    pub fn policy(
        self,
        name: PolicyName,
        workload: &Arc<Workload>,
        cluster: &Cluster,
        expected: &Target,
        writes: &Arc<AtomicU64>,
    ) -> Box<dyn Policy> {
        let scheduler = |extender, soft_taints| KubeScheduler::new(workload, extender, SHORTLIST, soft_taints);
        let extender = || Some(Extender::new(name, workload, cluster, expected));
        let soft_taints = |pods_per_second| SoftTaints::at(pods_per_second).counted(Arc::clone(writes));
        match self {
            Self::AllAsked { ties } => {
                let scheduler = Scheduler { ties, shortlist: SHORTLIST };
                Box::new(Product::new(name, workload, cluster, expected, scheduler))
            }
            Self::InTree => Box::new(scheduler(None, None)),
            Self::Extender => Box::new(scheduler(extender(), None)),
            Self::Gates => Box::new(scheduler(extender(), Some(soft_taints(1))).with_gates()),
            Self::SoftTaints { pods_per_second } => Box::new(scheduler(extender(), Some(soft_taints(pods_per_second)))),
        }
    }
}
