//! Fragmentation scorer of `least-fragmentation`: what a node loses to expected requests if a pod goes there.
//!
//! Nodes are scored in two rounds. The first scores all of them by what the pod makes unusable now; the second scores the best
//! of these by how well they could be filled afterwards, which takes longer. Scores of the first round are cached by the shape
//! of the pod until a node changes, those of the second by the free capacity of the node: of thousands of nodes few change
//! between two queries, and many have the same capacity free.

use std::collections::HashMap;
use std::sync::Arc;

use divvy_placement::nodes::forecast::{MOST_SEVERAL, NodeForecast};
use divvy_placement::{
    Allocatable, CardRow, CardTable, ExpectedRequests, Forecast, FreeCapacity, NodeScore, SlotWeights, capacity,
};
use foldhash::fast::RandomState;

use super::score_cache::{Scores, ShapeScores, Worth};
use crate::fit::Query;
use crate::nodes::{Node, NodeRef, View};

/// Everything that is known of nodes by one set of expected requests.
#[derive(Debug, Default)]
pub(crate) struct FragmentationScorer {
    expected: Arc<ExpectedRequests>,
    forecast: Forecast,
    /// Kinds of hardware that the forecast knows.
    hardware: usize,
    /// States by place.
    nodes: Vec<NodeState>,
    /// Version of the latest view that these were taken from.
    version: u64,
    sums: Sums,
    slot_weights: SlotWeights,
    /// By hardware.
    prices: Vec<f64>,
    /// Nodes that have changed since the weights were set.
    changes: u32,
    /// Number of this forecast, from 1.
    number: u64,
    /// Whether losses to pods of some shapes may be missing.
    is_behind: bool,
    /// Allocatable capacity by free capacity.
    allocatable: HashMap<FreeCapacity, Allocatable, RandomState>,
}

/// A node without the pod.
#[derive(Clone, Debug, Default)]
struct NodeState {
    /// Revision of the node; 0 where there is none.
    revision: u64,
    outlook: NodeForecast,
    /// Capacity of its cards, in thousandths of one.
    capacity: u64,
    /// Whether some of its cards are busier than reserved.
    is_busy: bool,
}

/// Sums over all nodes.
#[derive(Debug, Default)]
struct Sums {
    /// By hardware.
    free: Vec<u64>,
    capacity: u64,
    multi_gpu_slots: [u32; MOST_SEVERAL],
}

/// A node that has room, after the first round.
#[derive(Clone, Copy, Debug)]
struct Rated {
    asked: NodeRef,
    cost: f64,
    leftover: u32,
}

/// Cost of a thousandth of a card that expected requests can't use any more.
const OF_USABLE: f64 = 1.0;
/// Cost of a thousandth of a card that expected pods couldn't allocate any more.
const OF_ALLOCATABLE: f64 = 1.0;
/// Cost of a thousandth of a multi-GPU slot, at the highest weight.
const OF_SLOTS: f64 = 0.1;
/// Cost of a percent of utilization of the pod's card beyond what is reserved: a hundredth of a card, as a card that is always
/// busy is as good as lost to the pod.
const OF_BUSY: f64 = 10.0;
/// Cost of a thousandth of a card that requests will need which name its model, at the highest price.
const OF_MODELS: f64 = 1.0;
/// Costs closer than this are equal: finer differences only open new nodes early.
const BUCKET: f64 = 20.0;
/// Most nodes that the second round scores for one query.
const FINALISTS: usize = 8;
/// Nodes that are scored in advance as in the second round: a scheduler asks about some of all nodes, and the best of some are
/// among these.
const MOST_FORECAST: usize = 128;
/// Changes of nodes after which slot weights are updated.
const WEIGHTS_FOR: u32 = 32;
/// Thousandths of CPU cores that count as much as a thousandth of a card, as a node has 128 cores to eight cards.
const CPU_OF_CARD: u32 = 16;
/// Most nodes that one query scores anew; each takes a microsecond.
const MOST_NEW: usize = 1024;
/// Most nodes that a shape's first query scores: before the next one comes, all nodes are usually scored in advance.
const MOST_NEW_AT_FIRST: usize = 32;
/// Most nodes that the second round scores for a shape's first query: each takes up to 40 µs while nothing of them is cached.
const FINALISTS_AT_FIRST: usize = 1;
/// Most cached values of allocatable capacity: about 10 MiB, for nodes with eight cards. In a cluster with more than half as
/// many nodes it is two for each node, since a round of soft taints looks at all of them.
const MOST_ALLOCATABLE: usize = 40_000;

// === impl FragmentationScorer ===

impl FragmentationScorer {
    /// Scores nodes where the pod fits; without `all` only the best of them. `own` is the place where the pod has a
    /// reservation.
    pub(crate) fn rank(
        &mut self,
        query: &Query<'_>,
        view: &View,
        (asked, all): (&[NodeRef], bool),
        own: Option<u32>,
        shape: &mut ShapeScores,
    ) -> Vec<(NodeRef, NodeScore)> {
        self.catch_up(view);
        let own = own.and_then(|place| Some((place, view.node(place)?.without(query.demand))));
        let own = own.map(|(place, node)| (place, CardTable::new(&node.state), node));
        let own_at = |place| own.as_ref().filter(|(own, ..)| *own == place);
        let is_first = !shape.is_known() && !all;
        self.is_behind |= !shape.is_known();
        shape.renew(self.number, query);
        let mut rated = Vec::with_capacity(asked.len());
        let mut new = Vec::new();
        for asked in asked {
            let worth = match own_at(asked.place) {
                Some((_, cards, node)) => cards
                    .at(0)
                    .and_then(|cards| self.worth(query, (node, &NodeState::new(node, &self.forecast)), cards)),
                None => shape.losses.get(*asked).unwrap_or_else(|| {
                    new.push(*asked);
                    None
                }),
            };
            rated.extend(worth.map(|worth| self.rated(*asked, &worth)));
        }
        let most = if is_first {
            MOST_NEW_AT_FIRST
        } else if all {
            usize::MAX
        } else {
            MOST_NEW
        };
        for (count, asked) in spread(&new, most).enumerate() {
            if count >= most && !rated.is_empty() {
                break; // the others are scored in advance, or by the next queries
            }
            let worth = if is_first {
                self.worth_at(query, view, asked) // a table of all nodes would cost more than these shape
            } else {
                self.known_worth(&mut shape.losses, query, view, asked)
            };
            rated.extend(worth.map(|worth| self.rated(asked, &worth)));
        }
        let finalists = if is_first { FINALISTS_AT_FIRST } else { FINALISTS };
        let (best, others) = Rated::best(&mut rated, finalists);
        let mut scored = Vec::with_capacity(best.len() + if all { others.len() } else { 0 });
        for Rated { asked, cost, leftover } in best {
            let as_it_stands = match own_at(asked.place) {
                Some((_, card_table, node)) => Some(node).zip(card_table.at(0)),
                None => view.node(asked.place).map(Arc::as_ref).zip(view.card_row(asked.place)),
            };
            let lost = as_it_stands.and_then(|(node, card_row)| self.lost_allocatable(query, node, card_row));
            let cost = in_buckets(cost + OF_ALLOCATABLE * lost.unwrap_or(0.0));
            scored.push((*asked, NodeScore::of_cost([0, cost], (*leftover).into())));
        }
        let others = others.iter().filter(|_| all);
        scored.extend(others.map(|rated| {
            let (cost, leftover, _) = rated.order();
            (rated.asked, NodeScore::of_cost([1, cost], leftover.into()))
        }));
        scored
    }

    /// Applies the changes since the last query, unless that was by a later view.
    fn catch_up(&mut self, view: &View) {
        if view.version() <= self.version {
            return;
        }
        let hardware = view.hardware().len();
        if self.hardware != hardware || !Arc::ptr_eq(&self.expected, view.expected()) {
            *self = Self {
                expected: Arc::clone(view.expected()),
                forecast: Forecast::new(view.expected(), view.hardware()),
                hardware,
                sums: Sums { free: vec![0; hardware], ..Sums::default() },
                changes: WEIGHTS_FOR,
                number: self.number + 1,
                is_behind: true,
                ..Self::default()
            };
        }
        if self.nodes.len() < view.places() {
            self.nodes.resize_with(view.places(), NodeState::default);
        }
        for (place, revision, node) in view.changed_since(self.version) {
            if self.nodes[place].revision != revision {
                let now = node.map_or_else(NodeState::default, |node| NodeState::new(node, &self.forecast));
                self.sums.add(&now);
                self.sums.subtract(&std::mem::replace(&mut self.nodes[place], now));
                self.changes += 1;
                self.is_behind = true;
            }
        }
        self.version = view.version();
        if self.changes >= WEIGHTS_FOR {
            let Sums { free, capacity, multi_gpu_slots } = &self.sums;
            self.slot_weights = self.forecast.slot_weights(free.iter().sum(), *capacity, multi_gpu_slots);
            self.prices = self.forecast.prices(free, *capacity);
            self.changes = 0;
        }
    }

    /// Whether losses to pods of some shapes may be missing, until the next call.
    pub(crate) fn falls_behind(&mut self, view: &View) -> bool {
        self.catch_up(view);
        std::mem::take(&mut self.is_behind)
    }

    /// Works out what nodes lose that have changed.
    pub(crate) fn score(&self, query: &Query<'_>, view: &View, nodes: &[NodeRef], scores: &mut ShapeScores) {
        scores.renew(self.number, query);
        for asked in nodes {
            if self.nodes.get(asked.place as usize).is_some_and(|node| node.revision == asked.revision) {
                self.known_worth(&mut scores.losses, query, view, *asked);
            }
        }
    }

    /// The best nodes by the known scores of the first round.
    pub(crate) fn best_scored(&self, nodes: &[NodeRef], scores: &ShapeScores) -> Vec<NodeRef> {
        let rated = nodes.iter().filter_map(|asked| {
            let worth = scores.losses.get(*asked)??;
            Some(self.rated(*asked, &worth))
        });
        let mut rated: Vec<Rated> = rated.collect();
        let (best, _) = Rated::best(&mut rated, MOST_FORECAST);
        best.iter().map(|rated| rated.asked).collect()
    }

    /// Scores nodes as the second round does, and caches that.
    pub(crate) fn look_further(&mut self, query: &Query<'_>, view: &View, nodes: &[NodeRef]) {
        for NodeRef { place, .. } in nodes {
            if let Some((node, card_row)) = view.node(*place).zip(view.card_row(*place)) {
                self.lost_allocatable(query, node, card_row);
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
        scores.get(asked).unwrap_or_else(|| {
            let worth = self.worth_at(query, view, asked);
            scores.set(asked, worth);
            worth
        })
    }

    fn worth_at(&self, query: &Query<'_>, view: &View, asked: NodeRef) -> Option<Worth> {
        let NodeRef { place, revision, .. } = asked;
        let node = view.node(place)?;
        let card_row = view.card_row(place)?;
        match self.nodes.get(place as usize).filter(|now| now.revision == revision) {
            Some(now) => self.worth(query, (node, now), card_row),
            None => self.worth(query, (node, &NodeState::new(node, &self.forecast)), card_row), // a later view was here
        }
    }

    /// `None`: the pod doesn't fit.
    fn worth(&self, query: &Query<'_>, (node, now): (&Node, &NodeState), card_row: CardRow<'_>) -> Option<Worth> {
        let takes = query.takes(node, card_row)?;
        let loss = self.forecast.loss(&now.outlook, query.demand.requests.cpu_milli, &takes);
        let multi_gpu_slots =
            loss.multi_gpu_slots.map(|slots| u16::try_from(rounded(1000.0 * slots)).unwrap_or(u16::MAX));
        let leftover = loss.cards_left + loss.cpu_left.unwrap_or(0) / CPU_OF_CARD;
        let busy = || takes.iter().filter_map(|(card, _)| Some(node.state.held.get(*card)?.busy)).max();
        let busy = now.is_busy.then(busy).flatten().unwrap_or(0);
        Some(Worth { usable: rounded(loss.usable), multi_gpu_slots, leftover, busy, taken: loss.taken })
    }

    fn rated(&self, asked: NodeRef, worth: &Worth) -> Rated {
        Rated { asked, cost: self.cost(worth), leftover: worth.leftover }
    }

    /// Cost by the current weights.
    fn cost(&self, worth: &Worth) -> f64 {
        let lost_slots = |several: usize| f64::from(worth.multi_gpu_slots[several]) / 1000.0;
        OF_USABLE * f64::from(worth.usable)
            + OF_SLOTS * self.slot_weights.cost(lost_slots)
            + OF_BUSY * f64::from(worth.busy)
            + OF_MODELS * self.prices.get(usize::from(worth.taken.0)).unwrap_or(&0.0) * f64::from(worth.taken.1)
    }

    /// Capacity that expected pods can allocate without the pod but not with it.
    fn lost_allocatable(&mut self, query: &Query<'_>, node: &Node, card_row: CardRow<'_>) -> Option<f64> {
        let before = node.remains();
        let mut after = before.clone();
        after.take_cpu(query.demand.requests.cpu_milli);
        for (card, share) in query.takes(node, card_row)? {
            after.take(card, &share);
        }
        Some(self.allocatable(before).cards - self.allocatable(after).cards)
    }

    /// Number of soft taints that a node is to have. While nothing is expected, one if there is room for anything.
    pub(crate) fn soft_taints(&mut self, view: &View, node: &Node) -> u32 {
        self.catch_up(view);
        let free = node.remains();
        if self.expected.requests.is_empty() {
            return u32::from(free.size() > 0);
        }
        let cpu_milli = free.cpu_milli;
        self.allocatable(free).soft_taints(cpu_milli)
    }

    #[cfg(test)]
    pub(crate) fn sums(&mut self) -> String {
        // Hardware of nodes that are gone stays known.
        self.sums.free.retain(|free| *free > 0);
        format!("{:?}", self.sums)
    }

    fn allocatable(&mut self, node: FreeCapacity) -> Allocatable {
        let node = node.sorted();
        if let Some(known) = self.allocatable.get(&node) {
            return *known;
        }
        if self.allocatable.len() >= MOST_ALLOCATABLE.max(2 * self.nodes.len()) {
            self.allocatable.clear();
        }
        let allocatable = self.forecast.allocatable(&node);
        self.allocatable.insert(node, allocatable);
        allocatable
    }
}

// === impl NodeState ===

impl NodeState {
    fn new(node: &Node, forecast: &Forecast) -> Self {
        let capacity = node.cards().iter().filter(|card| card.is_healthy()).map(capacity).sum();
        let is_busy = node.state.held.iter().any(|held| held.busy > 0);
        Self { revision: node.revision, outlook: forecast.node_forecast(node.remains()), capacity, is_busy }
    }
}

// === impl Sums ===

impl Sums {
    fn add(&mut self, node: &NodeState) {
        for (hardware, free) in node.outlook.free_by_hardware() {
            self.change(hardware, |sum| sum + u64::from(free));
        }
        self.capacity += node.capacity;
        self.multi_gpu_slots
            .iter_mut()
            .zip(&node.outlook.multi_gpu_slots)
            .for_each(|(sum, slots)| *sum += whole(*slots));
    }

    fn subtract(&mut self, node: &NodeState) {
        for (hardware, free) in node.outlook.free_by_hardware() {
            self.change(hardware, |sum| sum - u64::from(free));
        }
        self.capacity -= node.capacity;
        self.multi_gpu_slots
            .iter_mut()
            .zip(&node.outlook.multi_gpu_slots)
            .for_each(|(sum, slots)| *sum -= whole(*slots));
    }

    /// Changes what is free of some hardware. Nothing is known of that whose number is that of no kind.
    fn change(&mut self, hardware: u16, change: impl Fn(u64) -> u64) {
        if let Some(sum) = self.free.get_mut(usize::from(hardware)) {
            *sum = change(*sum);
        }
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

/// All of these nodes in an order in which the first `most` are spread over them: parts of a cluster are alike.
fn spread(nodes: &[NodeRef], most: usize) -> impl Iterator<Item = NodeRef> {
    let step = nodes.len().div_ceil(most).max(1);
    (0..step).flat_map(move |first| nodes.iter().skip(first).step_by(step).copied())
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

/// Whole slots, without those that lack something.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "fewer than a node has cards, and none below 0"
)]
fn whole(slots: f64) -> u32 {
    slots as u32
}

#[cfg(test)]
mod tests;
