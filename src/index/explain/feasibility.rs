//! Whether pods like this find GPUs at all: what admission warns about.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::CardId;
use divvy_api::annotation::Preferences;
use divvy_placement::NodeScore;

use crate::demand::{Demand, Exceeded};
use crate::fit::Query;
use crate::nodes::{Node, NodeRef, View};
use crate::ranking::Budget;
use crate::snapshot::Snapshot;

/// Whether and where a pod fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feasibility {
    /// Whether it fits somewhere now; `None` if that would take too long to tell.
    pub now: Option<bool>,
    /// Whether it would fit somewhere if all GPUs were free.
    pub ever: bool,
    /// Nodes where it fits now, the best first.
    pub best: Vec<Arc<str>>,
    /// Number of known nodes.
    pub nodes: usize,
    /// Number of nodes whose reasons were collected, if it fits nowhere.
    pub asked: usize,
    /// Reasons if it fits nowhere, with the number of those nodes, the most frequent first.
    pub reasons: Vec<(Arc<str>, usize)>,
    /// Models that its namespace may have no more GPUs of.
    pub exceeded: Vec<Exceeded>,
    /// Which quota keeps it from GPUs of all models that it asks for, also from those that no node has.
    pub used_up: Option<Arc<str>>,
}

pub(crate) const MOST_NAMED: usize = 5;
/// Nodes that are rated at a time, if a plan takes a search: so many take a fraction of a millisecond. If the pod fits none
/// of them, others are rated.
const AT_A_TIME: usize = 256;
/// Kinds of hardware that are tried without any pods; with more, a pod is never called infeasible.
const MOST_KINDS: usize = 64;
/// Nodes whose reasons are collected.
const SAMPLE: usize = 16;

// === impl Snapshot ===

impl Snapshot {
    /// Whether and where a pod fits. Where a plan takes a search, cached scores are used. No node is looked at after `patience`:
    /// a new shape of pod costs the most if it fits nowhere.
    pub fn feasibility(&self, demand: &Demand, patience: Duration) -> Feasibility {
        let deadline = Instant::now() + patience;
        let is_late = || Instant::now() >= deadline;
        let view = &self.view;
        let exceeded = self.exceeded();
        let allowed = demand.avoiding(exceeded);
        let asked = &Query::new(demand, &self.config);
        let query = &Query::new(&allowed, &self.config);
        let score = |asked: &NodeRef, least: Option<&NodeScore>| query.rate_quickly(view, asked.place, least);
        let (best, is_certain) = if query.is_slow() {
            self.best_by_search(query, deadline)
        } else {
            let mut seen = 0;
            let mut is_certain = true;
            let in_time = |_: &NodeRef| {
                seen += 1;
                is_certain = seen % AT_A_TIME != 0 || !is_late();
                is_certain
            };
            (best_of(view.open().take_while(in_time), score), is_certain)
        };
        let nodes = view.len();
        if !best.is_empty() {
            let name = |(asked, _): (NodeRef, NodeScore)| Some(Arc::clone(&view.node(asked.place)?.name));
            let best = best.into_iter().filter_map(name).collect();
            return Feasibility {
                now: Some(true),
                ever: true,
                best,
                nodes,
                exceeded: exceeded.to_vec(),
                ..Feasibility::default()
            };
        }
        let deadline = Instant::now() + patience;
        let is_late = || Instant::now() >= deadline;
        let ever = could_ever(view, asked, is_late);
        let sample = view.all().step_by((nodes / SAMPLE).max(1)).take_while(|_| !is_late());
        let why_not = |node: &Arc<Node>| {
            let by_gpus = || if ever { node.why_not(asked) } else { Some(node.why_never(asked)?.reason) };
            node.why_over_quota(asked, exceeded).or_else(by_gpus)
        };
        let of_cards: Vec<_> = sample.map(|asked| view.node(asked.place).and_then(&why_not)).collect();
        let barred = view
            .unschedulable_nodes()
            .filter(|(asked, _)| !is_late() && fits(query, view, asked.place))
            .map(|(_, unschedulable)| Arc::from(unschedulable.reason()));
        Feasibility {
            now: is_certain.then_some(false),
            ever,
            best: Vec::new(),
            nodes,
            asked: of_cards.len(),
            reasons: grouped(of_cards.into_iter().flatten().chain(barred)),
            exceeded: exceeded.to_vec(),
            used_up: self.pod.used_up.clone(),
        }
    }

    /// The best nodes, and whether an empty list is certain.
    fn best_by_search(&self, query: &Query<'_>, deadline: Instant) -> (Vec<(NodeRef, NodeScore)>, bool) {
        let view = &self.view;
        let asked: Vec<NodeRef> = view.open().collect();
        let budget = Budget { bounds: AT_A_TIME, deadline: Some(deadline) };
        self.with_plans(query, |scores| {
            loop {
                let are_all = scores.refine(query, view, &asked, budget);
                let best = best_of(asked.iter().copied(), |asked, _| scores.rating(asked).score());
                if !best.is_empty() || are_all || Instant::now() >= deadline {
                    return (best, asked.iter().all(|asked| scores.rating(asked).is_final()));
                }
            }
        })
    }
}

/// Whether the pod fits on a node, scheduled or not.
fn fits(query: &Query<'_>, view: &View, place: u32) -> bool {
    if query.is_slow() {
        return view.node(place).is_some_and(|node| query.rate(node).is_some());
    }
    query.rate_quickly(view, place, None).is_some()
}

/// Reasons with how often each comes, the most frequent first.
pub(crate) fn grouped(reasons: impl Iterator<Item = Arc<str>>) -> Vec<(Arc<str>, usize)> {
    let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut counts: Vec<(Arc<str>, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts
}

/// The best few, the best first, equals in the order in which they come. `score` is called with the least that is wanted.
fn best_of(
    asked: impl Iterator<Item = NodeRef>,
    score: impl Fn(&NodeRef, Option<&NodeScore>) -> Option<NodeScore>,
) -> Vec<(NodeRef, NodeScore)> {
    let mut best: Vec<(NodeRef, NodeScore)> = Vec::with_capacity(MOST_NAMED + 1);
    for asked in asked {
        let least = best.get(MOST_NAMED - 1).map(|(_, score)| score);
        let Some(score) = score(&asked, least) else { continue };
        let at = best.partition_point(|(_, better)| *better >= score);
        best.insert(at, (asked, score));
        best.truncate(MOST_NAMED);
    }
    best
}

/// Whether the pod would fit somewhere if all GPUs were healthy and free; also where it is too late to tell. One node stands for
/// all of its kind, unless the pod names GPUs of it.
fn could_ever(view: &View, query: &Query<'_>, is_late: impl Fn() -> bool) -> bool {
    let Preferences { cards, avoid_cards, .. } = &query.demand.preferences;
    let named: HashSet<&CardId, foldhash::fast::RandomState> = cards.iter().chain(avoid_cards).collect();
    let is_named = |node: &Node| !named.is_empty() && node.cards().iter().any(|card| named.contains(&card.id));
    let mut kinds: HashSet<u64, foldhash::fast::RandomState> = HashSet::default();
    let mut to_try = view.kinds().filter(|(kind, node)| is_named(node) || kinds.insert(*kind));
    let would_fit = |(_, node): (u64, &Arc<Node>)| is_late() || node.why_never(query).is_none();
    to_try.by_ref().take(MOST_KINDS).any(would_fit) || to_try.next().is_some()
}

// === impl Feasibility ===

impl Feasibility {
    /// Why no node can take the pod now, or none ever could; `None` if one can, or if that isn't known.
    pub fn refusal(&self) -> Option<String> {
        let is_refused = self.now.map_or(!self.ever, |fits| !fits);
        is_refused.then(|| self.to_string())
    }
}

/// Summary in a sentence.
impl fmt::Display for Feasibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { now, ever, best, nodes, asked, reasons, .. } = self;
        match (now, ever) {
            (Some(true), _) => return write!(f, "best now: {}", best.join(", ")),
            (None, true) => return f.write_str("unknown: not all nodes were evaluated in time"),
            _ if *nodes == 0 => return f.write_str("0/0 nodes are available: no node has reported GPUs"),
            _ => write!(f, "0/{nodes} nodes are available")?,
        }
        if !ever {
            f.write_str(", and none could ever run this pod")?;
        }
        if asked < nodes {
            write!(f, " (reasons of {asked} nodes)")?;
        }
        for (at, (reason, nodes)) in reasons.iter().enumerate() {
            write!(f, "{} {nodes} {reason}", if at == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}
