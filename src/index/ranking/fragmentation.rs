//! What a node loses if a pod goes there, by what is expected to come: how `least-fragmentation` ranks nodes.
//!
//! Nodes are looked at in two rounds. The first is about all of them and sees what the pod spoils now; the second is about
//! the best of these and sees how well they could be filled afterwards, which takes longer. Answers of the first round are
//! kept by the shape of the pod until a node changes, and those of the second by what the node has left: of thousands of
//! nodes few change between two questions, and many have the same left.

use std::collections::HashMap;
use std::sync::Arc;

use divvy_placement::forecast::{MOST_SEVERAL, Stand};
use divvy_placement::{Card, Forecast, Ground, Grounds, Mix, NodeScore, Prices, Remains};
use foldhash::fast::RandomState;

use crate::demand::{Demand, Shape};
use crate::fit::{Query, ScoreCache, Scores};
use crate::snapshot::Node;
use crate::snapshot::NodeRef;
use crate::snapshot::View;

/// Everything that is known of nodes by one mix.
#[derive(Debug, Default)]
pub(crate) struct FragmentationScorer {
    mix: Arc<Mix>,
    forecast: Forecast,
    /// Kinds of hardware that the forecast knows.
    hardware: usize,
    /// By place.
    nodes: Vec<Standing>,
    /// Of the latest view that these were taken from.
    version: u64,
    sums: Sums,
    prices: Prices,
    /// Nodes that have changed since prices were set.
    changes: u32,
    scores: ScoreCache<Key, ShapeScores, MOST_SHAPES>,
    /// Scores of some shapes may be missing.
    is_behind: bool,
    /// What can be sold of nodes that have so much left.
    sellable: HashMap<Remains, f64, RandomState>,
}

/// A node without the pod.
#[derive(Clone, Debug, Default)]
struct Standing {
    /// Of the node; 0 where there is none.
    revision: u64,
    stand: Stand,
    /// What may be reserved of its cards, in thousandths of one.
    capacity: u64,
    /// Some of its cards are busier than reserved.
    is_busy: bool,
}

/// Of all nodes.
#[derive(Debug, Default)]
struct Sums {
    free: u64,
    capacity: u64,
    hosts: [u32; MOST_SEVERAL],
}

/// What nodes answered to pods of one shape; `None` where such a pod doesn't fit.
#[derive(Debug, Default)]
struct ShapeScores {
    by_place: Scores<Option<Worth>>,
    /// Such a pod; `None` for those that take a search.
    sample: Option<Arc<Demand>>,
}

/// What a node loses to a pod.
#[derive(Clone, Copy, Debug)]
struct Worth {
    usable: u32,
    /// Thousandths of hosts, by kind of several cards.
    hosts: [u16; MOST_SEVERAL],
    /// What is left over, cards and CPU alike: the less the better.
    leftover: u32,
    /// Percent by which the busiest of the pod's cards is busier than reserved.
    busy: u8,
}

/// A node that has room, after the first round.
#[derive(Clone, Copy, Debug)]
struct Rated {
    asked: NodeRef,
    cost: f64,
    leftover: u32,
}

/// Pods with one key have the same scores.
type Key = (Shape, u32);

/// What a thousandth of a card counts that the mix can't use any more, …
const OF_USABLE: f64 = 1.0;
/// … one that nobody buys in the end, …
const OF_SELLABLE: f64 = 1.0;
/// … and one of a host for several cards, at the highest price.
const OF_HOSTS: f64 = 0.1;
/// A percent of the time in which others are at work on the pod's card without a reservation: a hundredth of a card, as the pod
/// finds a card that is always busy like one that is lost to it.
const OF_BUSY: f64 = 10.0;
/// Costs closer than this are equal: finer differences only open new nodes early.
const BUCKET: f64 = 40.0;
/// Nodes of the second round.
const FINALISTS: usize = 8;
/// Nodes that are looked at in advance as if they were in the second round: a scheduler asks some of all nodes, and the
/// best of some are among these.
const PROMISING: usize = 128;
/// Changes of nodes after which prices are set anew.
const PRICED_FOR: u32 = 32;
/// Thousandths of CPU cores that count as much as a thousandth of a card, as 128 cores stand beside eight cards.
const CPU_OF_CARD: u32 = 16;
/// 72 bytes a node and shape: 22 MiB for 64 shapes and 5 000 nodes.
const MOST_SHAPES: usize = 64;
/// Nodes of one query that are asked for the first time, which takes a microsecond each.
const MOST_NEW: usize = 1024;
/// About 10 MiB, for nodes with eight cards.
const MOST_SELLABLE: usize = 40_000;

// === impl FragmentationScorer ===

impl FragmentationScorer {
    /// Other requests are expected from now on.
    pub(crate) fn expect(&mut self, mix: Arc<Mix>) {
        let scores = self.emptied_scores();
        *self = Self { mix, hardware: usize::MAX, scores, is_behind: true, ..Self::default() };
    }

    /// Shapes without scores: these are worked out again in advance.
    fn emptied_scores(&mut self) -> ScoreCache<Key, ShapeScores, MOST_SHAPES> {
        let mut scores = std::mem::take(&mut self.scores);
        scores.all_mut().for_each(|shape| shape.by_place.clear());
        scores
    }

    /// What is expected.
    pub(crate) fn mix(&self) -> &Arc<Mix> {
        &self.mix
    }

    /// Nodes where the pod fits, and what they are worth; not `all`: the best of them. `own` is the place where the pod
    /// has a reservation.
    pub(crate) fn rank(
        &mut self,
        query: &Query<'_>,
        view: &View,
        (asked, all): (&[NodeRef], bool),
        own: Option<u32>,
    ) -> Vec<(NodeRef, NodeScore)> {
        self.catch_up(view);
        let own = own.and_then(|place| Some((place, view.node(place)?.without(query.demand))));
        let own = own.map(|(place, node)| (place, Grounds::of(&node.cards, &node.links), node));
        let own_at = |place| own.as_ref().filter(|(own, ..)| *own == place);
        let key = key(query);
        let mut shape = self.scores.take(&key).unwrap_or_else(|| {
            self.is_behind = true;
            ShapeScores::of(query)
        });
        let mut rated: Vec<Rated> = Vec::with_capacity(asked.len());
        let mut new = 0;
        for asked in asked {
            let is_known = shape.by_place.get(*asked).is_some();
            if !is_known && !all && new >= MOST_NEW && !rated.is_empty() {
                continue; // it is asked by one of the next questions
            }
            new += usize::from(!is_known);
            let worth = match own_at(asked.place) {
                Some((_, grounds, node)) => grounds
                    .at(0)
                    .and_then(|ground| self.worth(query, (node, &Standing::of(node, &self.forecast)), ground)),
                None => self.known_worth(&mut shape.by_place, query, view, *asked),
            };
            rated.extend(worth.map(|worth| self.rated(*asked, &worth)));
        }
        self.scores.put(key, shape);
        let (best, others) = Rated::best(&mut rated, FINALISTS);
        let mut scored = Vec::with_capacity(best.len() + if all { others.len() } else { 0 });
        for Rated { asked, cost, leftover } in best {
            let as_it_stands = match own_at(asked.place) {
                Some((_, grounds, node)) => Some(node).zip(grounds.at(0)),
                None => view.node(asked.place).map(Arc::as_ref).zip(view.ground(asked.place)),
            };
            let lost = as_it_stands.and_then(|(node, ground)| self.unsold(query, node, ground));
            let cost = in_buckets(cost + OF_SELLABLE * lost.unwrap_or(0.0));
            scored.push((*asked, NodeScore::of_cost([0, cost], (*leftover).into())));
        }
        let others = others.iter().filter(|_| all);
        scored.extend(others.map(|rated| {
            let (cost, leftover, _) = rated.order();
            (rated.asked, NodeScore::of_cost([1, cost], leftover.into()))
        }));
        scored
    }

    /// Takes over what has changed since the last query.
    fn catch_up(&mut self, view: &View) {
        if self.hardware != view.hardware().len() {
            let mix = Arc::clone(&self.mix);
            let (forecast, hardware) = (Forecast::new(&mix, view.hardware()), view.hardware().len());
            let scores = self.emptied_scores();
            *self = Self { mix, forecast, hardware, changes: PRICED_FOR, scores, ..Self::default() };
        }
        if self.nodes.len() < view.places() {
            self.nodes.resize_with(view.places(), Standing::default);
        }
        for (place, revision, node) in view.changed_since(self.version) {
            if self.nodes[place].revision != revision {
                let now = node.map_or_else(Standing::default, |node| Standing::of(node, &self.forecast));
                self.sums.add(&now);
                self.sums.subtract(&std::mem::replace(&mut self.nodes[place], now));
                self.changes += 1;
                self.is_behind = true;
            }
        }
        self.version = self.version.max(view.version());
        if self.changes >= PRICED_FOR {
            let Sums { free, capacity, hosts } = &self.sums;
            self.prices = self.forecast.prices(*free, *capacity, hosts);
            self.changes = 0;
        }
    }

    /// Pods of all shapes that have come lately, if answers to them may be missing, of the nodes as they stand.
    pub(crate) fn samples(&mut self, view: &View) -> Vec<Arc<Demand>> {
        if self.scores.all().next().is_none() {
            return Vec::new();
        }
        self.catch_up(view);
        if !std::mem::take(&mut self.is_behind) {
            return Vec::new();
        }
        self.scores.all().filter_map(|shape| shape.sample.clone()).collect()
    }

    /// Asks nodes for an answer to keep, as far as they haven't been asked and are known as they stand.
    pub(crate) fn ask(&mut self, query: &Query<'_>, view: &View, nodes: &[NodeRef]) {
        let key = key(query);
        let Some(shape) = self.scores.get_mut(&key) else { return };
        let mut by_place = std::mem::take(&mut shape.by_place);
        for asked in nodes {
            if self.nodes.get(asked.place as usize).is_some_and(|node| node.revision == asked.revision) {
                self.known_worth(&mut by_place, query, view, *asked);
            }
        }
        if let Some(shape) = self.scores.get_mut(&key) {
            shape.by_place = by_place;
        }
    }

    /// The nodes that come first by the answers that are kept.
    pub(crate) fn promising(&self, query: &Query<'_>, nodes: &[NodeRef]) -> Vec<NodeRef> {
        let Some(shape) = self.scores.get(&key(query)) else { return Vec::new() };
        let rated = nodes.iter().filter_map(|asked| {
            let worth = shape.by_place.get(*asked)??;
            Some(self.rated(*asked, &worth))
        });
        let mut rated: Vec<Rated> = rated.collect();
        let (promising, _) = Rated::best(&mut rated, PROMISING);
        promising.iter().map(|rated| rated.asked).collect()
    }

    /// Looks at nodes as the second round would.
    pub(crate) fn look_further(&mut self, query: &Query<'_>, view: &View, nodes: &[NodeRef]) {
        for NodeRef { place, .. } in nodes {
            if let Some((node, ground)) = view.node(*place).zip(view.ground(*place)) {
                self.unsold(query, node, ground);
            }
        }
    }

    fn known_worth(
        &self,
        scores: &mut Scores<Option<Worth>>,
        query: &Query<'_>,
        view: &View,
        asked: NodeRef,
    ) -> Option<Worth> {
        if let Some(known) = scores.get(asked) {
            return known;
        }
        let NodeRef { place, revision, .. } = asked;
        let (node, ground) = (view.node(place)?, view.ground(place)?);
        let worth = match self.nodes.get(place as usize).filter(|now| now.revision == revision) {
            Some(now) => self.worth(query, (node, now), ground),
            None => self.worth(query, (node, &Standing::of(node, &self.forecast)), ground), // a later view was here
        };
        scores.set(asked, worth);
        worth
    }

    /// `None`: the pod doesn't fit.
    fn worth(&self, query: &Query<'_>, (node, now): (&Node, &Standing), ground: Ground<'_>) -> Option<Worth> {
        let takes = query.takes(node, ground)?;
        let loss = self.forecast.loss(&now.stand, query.demand.cpu_milli, &takes);
        let hosts = loss.hosts.map(|hosts| u16::try_from(rounded(1000.0 * hosts)).unwrap_or(u16::MAX));
        let leftover = loss.cards_left + loss.cpu_left.unwrap_or(0) / CPU_OF_CARD;
        let busy = || takes.iter().filter_map(|(card, _)| Some(node.cards.get(*card)?.busy)).max();
        let busy = now.is_busy.then(busy).flatten().unwrap_or(0);
        Some(Worth { usable: rounded(loss.usable), hosts, leftover, busy })
    }

    fn rated(&self, asked: NodeRef, worth: &Worth) -> Rated {
        Rated { asked, cost: self.cost(worth), leftover: worth.leftover }
    }

    /// By the prices of today.
    fn cost(&self, worth: &Worth) -> f64 {
        let hosts = |several: usize| f64::from(worth.hosts[several]) / 1000.0;
        OF_USABLE * f64::from(worth.usable) + OF_HOSTS * self.prices.cost(hosts) + OF_BUSY * f64::from(worth.busy)
    }

    /// What can be sold before the pod comes and not afterwards.
    fn unsold(&mut self, query: &Query<'_>, node: &Node, ground: Ground<'_>) -> Option<f64> {
        let before = node.remains();
        let mut after = before.clone();
        after.take_cpu(query.demand.cpu_milli);
        for (card, share) in query.takes(node, ground)? {
            after.take(card, &share);
        }
        Some(self.sellable(before) - self.sellable(after))
    }

    fn sellable(&mut self, node: Remains) -> f64 {
        let node = node.sorted();
        if let Some(known) = self.sellable.get(&node) {
            return *known;
        }
        if self.sellable.len() >= MOST_SELLABLE {
            self.sellable.clear();
        }
        let sellable = self.forecast.sellable(&node);
        self.sellable.insert(node, sellable);
        sellable
    }
}

// === impl ShapeScores ===

impl ShapeScores {
    fn of(query: &Query<'_>) -> Self {
        let sample = (!query.takes_a_search()).then(|| Arc::new(query.demand.clone()));
        Self { sample, ..Self::default() }
    }
}

// === impl Standing ===

impl Standing {
    fn of(node: &Node, forecast: &Forecast) -> Self {
        let capacity = node.cards.iter().filter(|card| card.healthy).map(Card::size).sum();
        let is_busy = node.cards.iter().any(|card| card.busy > 0);
        Self { revision: node.revision, stand: forecast.look_at(node.remains()), capacity, is_busy }
    }

    fn free(&self) -> u64 {
        self.stand.size().into()
    }
}

// === impl Sums ===

impl Sums {
    fn add(&mut self, node: &Standing) {
        self.free += node.free();
        self.capacity += node.capacity;
        self.hosts.iter_mut().zip(&node.stand.hosts).for_each(|(sum, hosts)| *sum += whole(*hosts));
    }

    fn subtract(&mut self, node: &Standing) {
        self.free -= node.free();
        self.capacity -= node.capacity;
        self.hosts.iter_mut().zip(&node.stand.hosts).for_each(|(sum, hosts)| *sum -= whole(*hosts));
    }
}

// === impl Rated ===

impl Rated {
    /// So many of the best, and the others, both in no order.
    fn best(rated: &mut [Self], most: usize) -> (&[Self], &[Self]) {
        if rated.len() <= most {
            return (rated, &[]);
        }
        rated.select_nth_unstable_by_key(most, Self::order);
        rated.split_at(most)
    }

    /// The best first; of equals the one that was known first.
    fn order(&self) -> (u64, u32, u32) {
        (in_buckets(self.cost), self.leftover, self.asked.place())
    }
}

fn key(query: &Query<'_>) -> Key {
    (query.demand.shape(), query.demand.cpu_milli)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "costs of a node: small, and none below 0")]
fn in_buckets(cost: f64) -> u64 {
    (cost.max(0.0) / BUCKET).round() as u64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "amounts of a node: small, and none below 0"
)]
fn rounded(amount: f64) -> u32 {
    (amount + 0.5) as u32
}

/// Hosts without those that lack something.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "fewer than a node has cards, and none below 0"
)]
fn whole(hosts: f64) -> u32 {
    hosts as u32
}

#[cfg(test)]
mod tests;
