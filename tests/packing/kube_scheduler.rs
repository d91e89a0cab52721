//! kube-scheduler 1.36 as it comes, one pod at a time: it filters a sample of the nodes by what it knows itself, asks
//! Divvy's extender about those that are left if the pod requests GPUs, adds its own scores, and takes the best, ties
//! at random.
//!
//! What it knows of cards are the amounts that the daemon publishes on a Node: sums for shares, without the models, and
//! nothing that would tell how many whole cards are free. Sources: `pkg/scheduler/schedule_one.go`
//! (`numFeasibleNodesToFind`, `nextStartNodeIndex`, `prioritizeNodes`) and the plugins in
//! `pkg/scheduler/framework/plugins`; weights from `apis/config/v1/default_plugins.go`. The other default plugins score
//! lone pods alike on all nodes. It batches equal pods that come at once (KEP-5598), which changes nothing in what it
//! would choose but the sample. Sixteen goroutines look for feasible nodes, each in a few nodes at a time, so that those
//! that are found first aren't quite the first. Ties are broken by a random number only between nodes that an extender has
//! scored (`Randomizer`), else by the order in which the nodes were found, which is as good as random.

mod scores;
mod soft_taints;

use std::sync::Arc;

use divvy_simulate::Rng;
use divvy_simulate::cluster::{Cards, Cluster, Host, Place};
use divvy_simulate::extender::Extender;
use divvy_simulate::policy::{Policy, Ties};
use divvy_simulate::target::Target;
use divvy_simulate::workload::{Arrival, Kind, Part, Workload};

use scores::{InTree, normalized_taints};

pub use soft_taints::SoftTaints;

/// The scheduler, with or without Divvy's extender.
pub struct KubeScheduler {
    workload: Arc<Workload>,
    in_tree: InTree,
    extender: Option<Extender>,
    /// Most nodes that the extender names.
    shortlist: usize,
    soft_taints: Option<SoftTaints>,
    /// Feasible nodes that are enough.
    enough: usize,
    /// `nextStartNodeIndex`.
    next_start: usize,
    /// Whether pods with cards have nominated nodes.
    has_gates: bool,
}

/// `minFeasibleNodesToFind`.
const LEAST_FEASIBLE: usize = 100;
/// `minFeasibleNodesPercentageToFind`.
const LEAST_PERCENT: usize = 5;
/// Weight of TaintToleration's score. NodeResourcesFit and NodeResourcesBalancedAllocation have 1, as the extender in
/// deploy/scheduler.
const TAINT_WEIGHT: i64 = 3;
/// `MaxNodeScore` by `MaxExtenderPriority`.
const EXTENDER_SCALE: i64 = 10;

/// How many feasible nodes are enough, with `percentageOfNodesToScore` as it comes.
fn enough_nodes(nodes: usize) -> usize {
    if nodes < LEAST_FEASIBLE {
        return nodes;
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(LEAST_PERCENT);
    (nodes * percent / 100).max(LEAST_FEASIBLE)
}

/// Whether a pod fits by the node's CPU and memory and by the amounts of its cards. Whole cards are requested by their number
/// alone, of which the Node offers 32 for each card, held or not: as good as always enough.
fn is_feasible(host: &Host, kind: &Kind) -> bool {
    let free = |of: fn(&Part) -> u32| host.cards.iter().map(of).sum::<u32>();
    let sums = || free(|part| part.cores) >= kind.part.cores && free(|part| part.memory) >= kind.part.memory;
    let amounts = || !host.cards.is_empty() && (!kind.is_share() || sums());
    host.fits_beside_cards(kind) && (kind.cards == 0 || amounts())
}

// === impl KubeScheduler ===

impl KubeScheduler {
    /// For an empty cluster. Without an extender, pods with cards go to nodes whose cards can hold them, as if the
    /// scheduler knew: a node would refuse them otherwise.
    pub fn new(
        workload: &Arc<Workload>,
        extender: Option<Extender>,
        shortlist: usize,
        soft_taints: Option<SoftTaints>,
    ) -> Self {
        let (in_tree, enough) = (InTree::new(workload), enough_nodes(workload.machines.len()));
        Self {
            workload: Arc::clone(workload),
            in_tree,
            extender,
            shortlist,
            soft_taints,
            enough,
            next_start: 0,
            has_gates: false,
        }
    }

    /// One that finds the node of each pod with cards nominated, the best of all by the leader's plan, and asks nobody.
    #[must_use]
    pub fn with_gates(self) -> Self {
        Self { has_gates: true, ..self }
    }

    /// The first feasible nodes from where the last search ended, as many as are enough.
    fn feasible(&mut self, cluster: &Cluster, kind: &Kind) -> Vec<usize> {
        let hosts = cluster.hosts();
        let fits = |at: &usize| match self.extender {
            Some(_) => is_feasible(&hosts[*at], kind),
            None => hosts[*at].fits(kind),
        };
        let mut looked_at = 0;
        let from_next = (0..hosts.len()).map(|at| (at + self.next_start) % hosts.len());
        let feasible = from_next.inspect(|_| looked_at += 1).filter(fits).take(self.enough).collect();
        self.next_start = (self.next_start + looked_at) % hosts.len();
        feasible
    }

    /// Nodes that are left, with the extender's scores. A pod for which the extender leaves none is tried again at the next
    /// event of any sort (`findNodesThatFitPod`: `ExtenderName`), with the nodes that follow: here at once, until all nodes
    /// have been looked at.
    fn filtered(&mut self, cluster: &Cluster, pod: Arrival) -> Vec<(usize, i64)> {
        let kind = &self.workload.kinds[pod.kind];
        if let (true, Some(planner)) = (self.has_gates && kind.cards > 0, &self.extender) {
            let hosts = cluster.hosts().iter().enumerate();
            let feasible: Vec<usize> = hosts.filter(|(_, host)| is_feasible(host, kind)).map(|(at, _)| at).collect();
            return planner.filter(pod, &feasible, 1).into_iter().map(|named| (named.host, 0)).collect();
        }
        let nodes = cluster.hosts().len();
        let mut tries = (0..nodes.div_ceil(self.enough.max(1))).map(|_| self.filtered_once(cluster, pod));
        tries.find(|left| !left.is_empty()).unwrap_or_default()
    }

    fn filtered_once(&mut self, cluster: &Cluster, pod: Arrival) -> Vec<(usize, i64)> {
        let kind = self.workload.kinds[pod.kind];
        let feasible = self.feasible(cluster, &kind);
        match self.extender.as_ref().filter(|_| kind.cards > 0) {
            None => feasible.into_iter().map(|host| (host, 0)).collect(),
            Some(extender) => {
                let named = extender.filter(pod, &feasible, self.shortlist);
                named.into_iter().map(|named| (named.host, EXTENDER_SCALE * named.score)).collect()
            }
        }
    }
}

impl Policy for KubeScheduler {
    fn choose(&mut self, cluster: &Cluster, pod: Arrival, rng: &mut Rng) -> Option<Place> {
        let nodes = self.filtered(cluster, pod);
        let (kind, hosts) = (&self.workload.kinds[pod.kind], cluster.hosts());
        let tolerates = kind.cards > 0;
        let taints = |(host, _): &(usize, i64)| {
            self.soft_taints.as_ref().filter(|_| !tolerates).map_or(0, |soft| soft.on(*host))
        };
        let taints = normalized_taints(nodes.iter().map(taints).collect());
        let rated = nodes.iter().zip(taints).map(|((host, extender), taints)| {
            (extender + self.in_tree.of(&hosts[*host], kind) + TAINT_WEIGHT * taints, *host)
        });
        let host = Ties::Random.best(rated, rng)?;
        let cards = match &self.extender {
            Some(extender) if kind.cards > 0 => extender.bind(pod, host)?,
            Some(extender) => {
                extender.watch(pod, host);
                Cards::default()
            }
            None => hosts[host].tightest(kind),
        };
        Some(Place { host, cards })
    }

    fn ended(&mut self, pod: Arrival) {
        if let Some(extender) = &self.extender {
            extender.ended(pod);
        }
    }

    fn tick(&mut self, cluster: &Cluster) {
        if let (Some(taints), Some(extender)) = (&mut self.soft_taints, &self.extender) {
            taints.write(cluster, extender);
        }
    }

    fn expect(&mut self, target: &Target) {
        if let Some(extender) = &self.extender {
            extender.expect(target);
        }
        self.soft_taints.iter_mut().for_each(SoftTaints::reconsider);
    }
}

#[cfg(test)]
mod tests;
