//! Policies: where a pod goes.
//!
//! A policy that only rates hosts one by one is a [`Score`], and takes a few lines: [`Scored`] asks it about hosts that
//! have changed since it was last asked for such a pod, and breaks ties. What looks at the whole cluster is a [`Policy`].

mod best_fit;
mod product;

use std::sync::Arc;

use divvy_api::annotation::PolicyName;
use rand::RngExt as _;

use crate::Rng;
use crate::cluster::{Cards, Cluster, Host, Place};
use crate::target::Target;
use crate::workload::{Arrival, Kind, Workload};

pub use best_fit::BestFit;
pub use product::Product;

/// Decides where pods go.
pub trait Policy {
    /// Where the pod goes, which it does then; `None`: it is refused for good.
    fn choose(&mut self, cluster: &Cluster, pod: Arrival, rng: &mut Rng) -> Option<Place>;

    /// The pod is over and its place free.
    fn ended(&mut self, _pod: Arrival) {}

    /// A second passes, in which a pod comes: does what is done beside decisions.
    fn tick(&mut self, _cluster: &Cluster) {}

    /// Other requests are expected from now on.
    fn expect(&mut self, _target: &Target) {}
}

/// What a host is worth to a pod that fits there, and the cards that it would get; the greater the better.
pub trait Score {
    /// Hosts don't depend on one another, nor on what was before.
    fn rate(&self, host: &Host, kind: &Kind) -> (i64, Cards);
}

/// Choice between hosts that are equally good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// A draw for each pod, as in kube-scheduler.
    Random,
    /// An order of the hosts that is drawn once for a run.
    Fixed,
}

/// How a scheduler uses a policy's scores that asks about all hosts where the pod fits, and takes the best.
#[derive(Clone, Copy, Debug)]
pub struct Scheduler {
    /// Between hosts that are equally good.
    pub ties: Ties,
    /// Nodes that the extender names; 0: all that are as good as the best.
    pub shortlist: usize,
}

/// Puts each pod on the host with the best score.
pub struct Scored<S> {
    score: S,
    ties: Ties,
    kinds: Arc<[Kind]>,
    /// By kind and host.
    ratings: Vec<Vec<Rating>>,
}

#[derive(Clone, Copy, Default)]
struct Rating {
    /// Revision of the host when it was rated; 0 if it never was.
    revision: u32,
    /// `None` if the pod doesn't fit.
    worth: Option<(i64, Cards)>,
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// The least that is left of CPU and cards.
    BestFit,
    /// One of Divvy's own.
    Product(PolicyName),
}

/// Nodes that the extender names: the webhook's default.
pub const SHORTLIST: usize = 16;

// === impl Ties ===

impl Ties {
    /// The first of the best, or any of them.
    pub fn best<S: Ord, T>(self, rated: impl Iterator<Item = (S, T)>, rng: &mut Rng) -> Option<T> {
        let mut best = None::<(S, T)>;
        let mut equals = 0_u32;
        for (score, what) in rated {
            let order = best.as_ref().map(|(best, _)| score.cmp(best));
            match order {
                None | Some(std::cmp::Ordering::Greater) => (best, equals) = (Some((score, what)), 1),
                Some(std::cmp::Ordering::Equal) if self == Self::Random => {
                    equals += 1;
                    if rng.random_range(0..equals) == 0 {
                        best = Some((score, what));
                    }
                }
                Some(_) => {}
            }
        }
        best.map(|(_, what)| what)
    }
}

// === impl Scored ===

impl<S: Score> Scored<S> {
    /// A policy without ratings.
    pub fn new(score: S, ties: Ties, workload: &Workload) -> Self {
        let ratings = vec![vec![Rating::default(); workload.machines.len()]; workload.kinds.len()];
        Self { score, ties, kinds: workload.kinds.as_slice().into(), ratings }
    }
}

impl<S: Score> Policy for Scored<S> {
    fn choose(&mut self, cluster: &Cluster, pod: Arrival, rng: &mut Rng) -> Option<Place> {
        let kind = &self.kinds[pod.kind];
        let score = &self.score;
        let rated =
            self.ratings[pod.kind].iter_mut().zip(cluster.hosts()).enumerate().filter_map(|(at, (known, host))| {
                if known.revision != host.revision {
                    let worth = host.fits(kind).then(|| score.rate(host, kind));
                    *known = Rating { revision: host.revision, worth };
                }
                let (score, cards) = known.worth?;
                Some((score, Place { host: at, cards }))
            });
        self.ties.best(rated, rng)
    }
}

// === impl Name ===

impl Name {
    /// All of them, the baseline first.
    pub const ALL: [Self; 5] = [
        Self::BestFit,
        Self::Product(PolicyName::LeastFragmentation),
        Self::Product(PolicyName::Binpack),
        Self::Product(PolicyName::Spread),
        Self::Product(PolicyName::Topology),
    ];

    /// Name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestFit => "best-fit",
            Self::Product(PolicyName::LeastFragmentation) => "least-fragmentation",
            Self::Product(PolicyName::Binpack) => "binpack",
            Self::Product(PolicyName::Spread) => "spread",
            Self::Product(PolicyName::Topology) => "topology",
            Self::Product(PolicyName::Random) => "random",
        }
    }

    /// The policy, for an empty cluster to which pods come as `target` says.
    pub fn policy(
        self,
        workload: &Arc<Workload>,
        cluster: &Cluster,
        target: &Target,
        scheduler: Scheduler,
    ) -> Box<dyn Policy> {
        match self {
            Self::BestFit => Box::new(Scored::new(BestFit, scheduler.ties, workload)),
            Self::Product(name) => Box::new(Product::new(name, workload, cluster, target, scheduler)),
        }
    }
}

// === impl Scheduler ===

impl Scheduler {
    /// Divvy's webhook behind kube-scheduler, which draws between equals.
    pub const RANDOM: Self = Self { ties: Ties::Random, shortlist: SHORTLIST };
}

#[cfg(test)]
mod tests;
