//! Forecast of what a pod on a node takes from requests to come, so that a node can be chosen where it takes least.
//!
//! Measures of one node alone, each worth less after a pod has come, and a price:
//!
//! - [`usable`](NodeForecast::usable): free capacity that an expected request could use, on average. What is free
//!   beyond that is a fragment (after FGD, Weng et al., USENIX ATC 2023, whose cards have one dimension).
//! - [`multi_gpu_slots`](NodeForecast::multi_gpu_slots): how many requests for several cards the node could take. Few come, so
//!   that the average hardly notices them, and one small pod can leave a node without a slot for them. They are
//!   [weighted](Forecast::slot_weights) by how scarce such slots are in the whole cluster.
//! - [`prices`](Forecast::prices): what a model is worth, as requests that name it will need what is free of it.
//! - [`allocatable`](Forecast::allocatable): capacity that would be allocated if expected pods came until none fits any more.
//!   It looks furthest ahead, and costs a hundred times as much. From it follows, too, what a pod without cards would be in
//!   the way of: [`soft_taints`](Allocatable::soft_taints).

mod classes;
mod outlook;

use divvy_api::request::Sharing;
use divvy_api::{MemoryAmount, Share};

use crate::eligible::is_allowed;
use crate::nodes::expected::{Expected, ExpectedRequests, Kind};
use crate::nodes::free_capacity::{FreeCapacity, Hardware, Left, size_of};

use classes::{Classes, Steps, has};

pub use outlook::{Loss, NodeForecast};

/// The expected requests, worked out for the hardware that there is.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    /// The most frequent kinds, which cover most requests, come first.
    classes: Vec<Class>,
    /// How frequent each of these is; all of them together are 1.
    parts: Vec<f64>,
    /// Kinds of several cards.
    several: Vec<Several>,
    /// Choices of models that leave out some hardware.
    choices: Vec<Choice>,
    by_cpu: Steps,
    hardware: Vec<Suited>,
    /// Positions of classes, as their pods may come.
    streams: Vec<Vec<u8>>,
}

/// Weights of multi-GPU slots, by kind as in [`NodeForecast::multi_gpu_slots`]: in thousandths of cards, from nothing, where there
/// are plenty, to all the cards of a request. Kinds without a weight are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotWeights(Vec<(usize, f64)>);

/// What expected pods would allocate on a node before none fits any more: the mean of some futures, the same ones for every
/// node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allocatable {
    /// In thousandths of cards.
    pub cards: f64,
    /// Requests of the pods that have them, in thousandths of a CPU core.
    pub cpu_milli: f64,
}

/// What a kind asks for beside its part of each card.
#[derive(Clone, Copy, Debug)]
struct Class {
    cards: u32,
    cpu_milli: u32,
}

/// What is left of a card that isn't full, and what fits there.
#[derive(Clone, Copy, Debug)]
struct Open {
    left: Left,
    fitting: Classes,
}

/// A class of several cards.
#[derive(Clone, Copy, Debug)]
struct Several {
    class: usize,
    /// Fraction of all requested cards.
    demand: f64,
}

/// Hardware that some requests name.
#[derive(Clone, Debug)]
struct Choice {
    /// By hardware.
    contains: Vec<bool>,
    /// Fraction of all requested cards.
    demand: f64,
}

/// Classes on some hardware.
#[derive(Clone, Debug)]
struct Suited {
    /// By class; nothing where the hardware won't do.
    needs: Vec<Option<Need>>,
    /// Classes for which the hardware will do.
    able: Classes,
    /// Classes for which it will do and that take a part of a card.
    sharing: Classes,
    by_memory: Steps,
    by_cores: Steps,
}

/// What a class takes of a card.
#[derive(Clone, Copy, Debug)]
struct Need {
    /// In MiB.
    memory: u32,
    /// In thousandths of a card, as [`Left::size`].
    size: u32,
    cores: u16,
    is_exclusive: bool,
}

/// The part of all requests that the common ones cover at least.
const COVERAGE: f64 = 0.95;
/// Most common kinds: together with those of several cards they are a set of bits.
const MOST_COMMON: usize = 64;
/// Kinds of several cards that are looked after: those that ask for most.
pub const MOST_SEVERAL: usize = 24;
/// Simulated futures of one node.
const STREAMS: u32 = 24;
/// Pods of each future: more than fill any node, or it isn't full, which is no matter.
const STREAM: usize = 150;
/// A node with one card too few for a class counts as this part of a slot, as a pod may end.
const NEARLY: f64 = 0.3;
/// Part of the cluster that becomes free while pods wait, in addition to what is free now.
const TURNOVER: f64 = 0.02;
/// Requests for each model that are assumed beside those that were counted: that nobody has named it yet says little while few
/// have come.
const ASSUMED: f64 = 10.0;
/// Part of a node's free CPU that expected pods must need for it to be kept for them.
const NEEDED: f64 = 0.75;
/// Steps in which weights move.
const WEIGHT_STEPS: f64 = 20.0;

// === impl Forecast ===

impl Forecast {
    /// Works out the expected requests for cards of these kinds, by their numbers. Without requests it's empty.
    pub fn new(expected: &ExpectedRequests, hardware: &[Hardware]) -> Self {
        let mut requests: Vec<&Expected> = expected.requests.iter().filter(|request| request.weight > 0).collect();
        requests.sort_by_key(|request| std::cmp::Reverse(request.weight));
        let demand = |request: &Expected| demand(&request.kind) * f64::from(request.weight);
        let all_demand: f64 = requests.iter().copied().map(demand).sum();
        let (common, weights) = common(&requests);
        let mut several: Vec<&Expected> = requests.iter().copied().filter(|it| it.kind.request.cards > 1).collect();
        several.sort_by(|one, other| demand(other).total_cmp(&demand(one)));
        several.truncate(MOST_SEVERAL);

        let mut kinds: Vec<&Kind> = common.iter().map(|request| &request.kind).collect();
        let several = several
            .into_iter()
            .map(|request| Several { class: class(&mut kinds, &request.kind), demand: demand(request) / all_demand })
            .collect();
        let covered: f64 = weights.iter().sum();
        let parts: Vec<f64> = weights.iter().map(|weight| weight / covered).collect();
        Self {
            streams: streams(&parts),
            parts,
            several,
            choices: choices(&requests, hardware, all_demand, expected.counted),
            by_cpu: Steps::new(kinds.iter().map(|kind| Some(kind.cpu_milli))),
            hardware: hardware.iter().map(|hardware| Suited::to(&kinds, hardware)).collect(),
            classes: kinds.iter().map(|kind| Class { cards: kind.request.cards, cpu_milli: kind.cpu_milli }).collect(),
        }
    }

    /// Weights of slots in a cluster with so much free of so much, in thousandths of cards, and so many whole slots of each
    /// kind: how likely it is that as many requests come before everything is full, if they come one by one.
    pub fn slot_weights(&self, free: u64, capacity: u64, slots: &[u32]) -> SlotWeights {
        let coming = milli(free) + TURNOVER * milli(capacity);
        let weights = self.several.iter().zip(slots).map(|(several, slots)| self.slot_weight(several, *slots, coming));
        SlotWeights(weights.enumerate().filter(|(_, weight)| *weight > 0.0).collect())
    }

    /// Weight of so many slots for requests of one class, where requests for `coming` thousandths of cards come in all.
    fn slot_weight(&self, several: &Several, slots: u32, coming: f64) -> f64 {
        let class = self.classes[several.class];
        let mut requests = 0.0;
        for other in &self.several {
            let Class { cards, cpu_milli } = self.classes[other.class];
            // Requests that are harder to place take slots too, the larger ones several.
            if (cards, cpu_milli) >= (class.cards, class.cpu_milli) {
                let of_other = other.demand * coming / (1000.0 * f64::from(cards));
                requests += of_other * f64::from(cards / class.cards);
            }
        }
        let weight = (at_least(requests, slots) * WEIGHT_STEPS).round() / WEIGHT_STEPS;
        weight * 1000.0 * f64::from(class.cards)
    }

    /// Price of each hardware in a cluster with so much of it free, of so much in all, in thousandths of cards: how likely it is
    /// that requests that name it come for more than that before everything is full, if they come one by one. From 0 to 1.
    pub fn prices(&self, free: &[u64], capacity: u64) -> Vec<f64> {
        let all_free = milli(free.iter().sum());
        let coming = all_free + TURNOVER * milli(capacity);
        let mut prices = vec![0.0; free.len()];
        for choice in &self.choices {
            let price = choice.price(free, coming);
            let named = prices.iter_mut().zip(&choice.contains).filter(|(_, is_in)| **is_in);
            named.for_each(|(highest, _)| *highest = f64::max(*highest, price));
        }
        prices
    }

    /// Works out what expected pods would allocate on the node.
    pub fn allocatable(&self, node: &FreeCapacity) -> Allocatable {
        let mut open: Vec<Open> = node.cards.iter().filter(|left| left.size > 0).map(|left| self.open(*left)).collect();
        open.sort_unstable_by_key(|card| card.left.size);
        let mut allocated = 0;
        let mut requested = 0;
        let mut cards = open.clone();
        for stream in &self.streams {
            cards.copy_from_slice(&open);
            let mut cpu = node.cpu_milli;
            let mut in_vain = 0;
            let mut may_fit = self.may_fit(&cards, cpu);
            for class in stream {
                let class = usize::from(*class);
                if !has(may_fit, class) {
                    continue; // what doesn't fit will never fit
                }
                match self.allocate(&mut cards, class) {
                    0 => in_vain |= 1 << class,
                    size => {
                        allocated += size;
                        requested += u64::from(self.classes[class].cpu_milli);
                        cpu = cpu.map(|free| free - self.classes[class].cpu_milli);
                    }
                }
                may_fit = self.may_fit(&cards, cpu) & !in_vain;
                if may_fit == 0 {
                    break;
                }
            }
        }
        let futures = f64::from(STREAMS);
        Allocatable { cards: f64::from(allocated) / futures, cpu_milli: milli(requested) / futures }
    }

    /// The common classes that fit one of these cards, and the CPU.
    fn may_fit(&self, cards: &[Open], cpu: Option<u32>) -> Classes {
        let common = Classes::MAX >> (Classes::BITS as usize - self.parts.len().max(1));
        cards.iter().fold(0, |all, card| all | card.fitting) & self.with_cpu(cpu) & common
    }

    /// Allocates a pod the tightest of these cards, which are in that order and stay in it. Returns what it takes of them; 0 if
    /// it doesn't fit.
    fn allocate(&self, cards: &mut [Open], class: usize) -> u32 {
        let wanted = self.classes[class].cards;
        let fits = |card: &Open| has(card.fitting, class);
        if wanted > 1 && cards.iter().filter(|card| fits(card)).count() < wanted as usize {
            return 0;
        }
        let mut from = 0;
        let mut allocated = 0;
        for _ in 0..wanted {
            let Some(at) = cards[from..].iter().position(fits) else { break };
            let at = from + at;
            let mut left = cards[at].left;
            let Some(Need { memory, cores, is_exclusive, size }) = self.need(left, class) else { break };
            left.take(memory, cores, is_exclusive);
            allocated += size;
            cards[at] = self.open(left);
            let tighter = cards[..at].partition_point(|card| card.left.size < left.size);
            cards[tighter..=at].rotate_right(1);
            from = at + 1; // those before it were too small, or have been taken
        }
        allocated
    }

    fn open(&self, left: Left) -> Open {
        Open { left, fitting: self.fitting(left) }
    }

    /// What a class needs of a card; `None` if it won't do.
    fn need(&self, left: Left, class: usize) -> Option<Need> {
        *self.hardware.get(usize::from(left.hardware))?.needs.get(class)?
    }

    /// The classes that fit what is left of a card.
    #[inline]
    fn fitting(&self, left: Left) -> Classes {
        let Some(suited) = self.hardware.get(usize::from(left.hardware)) else { return 0 };
        let open = if left.whole { suited.able } else { suited.sharing };
        open & suited.by_memory.met_by(left.memory) & suited.by_cores.met_by(left.cores.into())
    }

    /// The classes that would fit the card if nobody had anything of it.
    fn able(&self, left: Left) -> Classes {
        self.hardware.get(usize::from(left.hardware)).map_or(0, |suited| suited.able)
    }

    /// The classes for which so much CPU will do; `None`: enough for everybody.
    #[inline]
    fn with_cpu(&self, cpu: Option<u32>) -> Classes {
        self.by_cpu.met_by(cpu.unwrap_or(u32::MAX))
    }
}

// === impl Allocatable ===

impl Allocatable {
    /// Number of soft taints by which a node with so much free CPU keeps off pods without cards: none, if nobody could
    /// allocate its cards; one, if pods could and have CPU enough beside such pods; two, if they will need a good part of it.
    pub fn soft_taints(&self, cpu_milli: Option<u32>) -> u32 {
        let is_needed = cpu_milli.is_some_and(|free| self.cpu_milli > NEEDED * f64::from(free));
        u32::from(self.cards > 0.0) + u32::from(self.cards > 0.0 && is_needed)
    }
}

// === impl SlotWeights ===

impl SlotWeights {
    /// Cost of losing so many slots, by kind of several cards.
    pub fn cost(&self, lost: impl Fn(usize) -> f64) -> f64 {
        self.0.iter().map(|(several, weight)| weight * lost(*several)).sum()
    }
}

// === impl Suited ===

impl Suited {
    fn to(kinds: &[&Kind], hardware: &Hardware) -> Self {
        let needs: Vec<Option<Need>> = kinds.iter().map(|kind| Need::from_kind(kind, hardware)).collect();
        let those = |is_one: fn(&Need) -> bool| {
            let classes = needs.iter().enumerate().filter(|(_, need)| need.as_ref().is_some_and(is_one));
            classes.fold(0, |all, (class, _)| all | 1 << class)
        };
        Self {
            able: those(|_| true),
            sharing: those(|need| !need.is_exclusive),
            by_memory: Steps::new(needs.iter().map(|need| Some(need.as_ref()?.memory))),
            by_cores: Steps::new(needs.iter().map(|need| Some(need.as_ref()?.cores.into()))),
            needs,
        }
    }
}

// === impl Choice ===

impl Choice {
    /// Price where so much of each hardware is free, and requests for `coming` thousandths of cards come in all.
    fn price(&self, free: &[u64], coming: f64) -> f64 {
        let named = free.iter().zip(&self.contains).filter(|(_, is_in)| **is_in);
        let available: u64 = named.map(|(free, _)| *free).sum();
        let requests = self.demand * coming / 1000.0;
        let price = at_least(requests, u32::try_from(available / 1000).unwrap_or(u32::MAX));
        (price * WEIGHT_STEPS).round() / WEIGHT_STEPS
    }
}

// === impl Need ===

impl Need {
    /// `None`: the hardware won't do.
    fn from_kind(kind: &Kind, hardware: &Hardware) -> Option<Self> {
        let whole = kind.instances || hardware.undivided;
        let sharing = if whole { Sharing::Whole } else { Sharing::Part };
        let Share { memory, cores, exclusive, .. } = kind.request.share_of(hardware.memory, sharing);
        let is_of_kind = kind.profile == hardware.profile && (hardware.is_instance || !kind.instances);
        let is_too_small = whole && !kind.request.is_within(hardware.memory);
        if !is_of_kind || is_too_small || !is_allowed(&hardware.model, &kind.models, &kind.avoid_models) {
            return None;
        }
        let memory = u32::try_from(memory.as_mib()).ok()?;
        let cores = u16::try_from(cores.units()).unwrap_or(u16::MAX);
        Some(Self { memory, size: size_of(memory, cores).max(1), cores, is_exclusive: exclusive })
    }
}

/// Cards that a kind asks for. What is asked for in MiB counts as a card where compute doesn't tell how much of one it is.
fn demand(kind: &Kind) -> f64 {
    let of_each = match (kind.request.cores.units(), kind.request.memory) {
        _ if kind.instances => 100,
        (0, MemoryAmount::Percent(percent)) => percent,
        (0, MemoryAmount::Absolute(_)) => 100,
        (cores, _) => cores,
    };
    f64::from(kind.request.cards) * f64::from(of_each) / 100.0
}

/// Kinds that stand for all of these, which come in the order of their frequency, with their weights. Most of them are the
/// most frequent ones; of those that name models one for each choice of models stands for the rare ones, which would otherwise
/// be forgotten together: many sizes make each of them rare.
fn common<'e>(requests: &[&'e Expected]) -> (Vec<&'e Expected>, Vec<f64>) {
    let all: f64 = requests.iter().map(|request| f64::from(request.weight)).sum();
    let mut common = Vec::<&Expected>::new();
    let mut weights = Vec::new();
    let mut covered = 0.0;
    for request in requests {
        let weight = f64::from(request.weight);
        let names_models = !request.kind.models.is_empty() || !request.kind.avoid_models.is_empty();
        let names_the_same = |known: &&Expected| {
            known.kind.models == request.kind.models && known.kind.avoid_models == request.kind.avoid_models
        };
        let is_frequent = covered < COVERAGE * all;
        let stands_for_it = || common.iter().position(names_the_same).filter(|_| names_models && !is_frequent);
        if let Some(known) = stands_for_it() {
            weights[known] += weight;
        } else if (is_frequent || names_models) && common.len() < MOST_COMMON {
            common.push(request);
            weights.push(weight);
        }
        covered += weight;
    }
    (common, weights)
}

/// Choices of models, with the part of all requested cards for which they come: so many requests were counted, and some that
/// name one model are assumed.
fn choices(requests: &[&Expected], hardware: &[Hardware], all_demand: f64, counted: u32) -> Vec<Choice> {
    let mut models: Vec<&str> = hardware.iter().map(|hardware| &*hardware.model).collect();
    models.sort_unstable();
    models.dedup();
    let models = if requests.is_empty() || models.len() < 2 { Vec::new() } else { models };
    let all = f64::from(counted) + ASSUMED * milli(models.len() as u64);
    let of_model = |model: &&str| hardware.iter().map(|hardware| *hardware.model == **model).collect();
    let mut choices: Vec<Choice> =
        models.iter().map(|model| Choice { contains: of_model(model), demand: ASSUMED / all }).collect();
    for request in requests {
        let contains: Vec<bool> =
            hardware.iter().map(|hardware| Need::from_kind(&request.kind, hardware).is_some()).collect();
        if contains.iter().all(|is_in| *is_in) {
            continue;
        }
        let part = demand(&request.kind) * f64::from(request.weight) / all_demand;
        let demand = part * f64::from(counted) / all.max(1.0);
        match choices.iter_mut().find(|known| known.contains == contains) {
            Some(known) => known.demand += demand,
            None => choices.push(Choice { contains, demand }),
        }
    }
    choices
}

/// The number of a kind, which is added if it is new.
fn class<'a>(kinds: &mut Vec<&'a Kind>, kind: &'a Kind) -> usize {
    kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
        kinds.push(kind);
        kinds.len() - 1
    })
}

/// Draws that depend on nothing but the expected requests.
fn streams(parts: &[f64]) -> Vec<Vec<u8>> {
    let mut state = 0;
    let mut draw = || {
        state += 1;
        drawn(parts, state)
    };
    let streams = if parts.is_empty() { 0 } else { STREAMS };
    (0..streams).map(|_| (0..STREAM).map(|_| draw()).collect()).collect()
}

/// The part that one draw gives, by its number.
fn drawn(parts: &[f64], draw: u64) -> u8 {
    let mut unit = f64::from((crate::policy::mixed(draw) >> 32) as u32) / f64::from(u32::MAX);
    let of = parts.iter().position(|part| {
        unit -= part;
        unit < 0.0
    });
    u8::try_from(of.unwrap_or(0)).unwrap_or(0)
}

/// How likely it is that at least so many come where `mean` are expected (Poisson).
fn at_least(mean: f64, number: u32) -> f64 {
    if mean > 50.0 {
        return 1.0 / (1.0 + (1.7 * (f64::from(number) - mean) / mean.sqrt()).exp());
    }
    let mut of_exactly = (-mean).exp();
    let mut fewer = 0.0;
    for count in 1..=number.min(1000) {
        fewer += of_exactly;
        of_exactly *= mean / f64::from(count);
    }
    (1.0 - fewer).clamp(0.0, 1.0)
}

#[expect(clippy::cast_precision_loss, reason = "2^53 thousandths are more cards and CPU cores than there are")]
fn milli(amount: u64) -> f64 {
    amount as f64
}

#[cfg(test)]
mod tests;
