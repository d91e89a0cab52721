//! Rules: which of the free cards a request gets.

mod best_effort;
mod hami;
mod product;

use std::collections::HashMap;

use divvy_api::Link;
use divvy_api::annotation::PolicyName;
use rand::seq::IteratorRandom as _;

use super::machine::positions;
use super::{CardSet, Machine};
pub(crate) use best_effort::BestEffort;
use divvy_simulate::Rng;
pub(crate) use hami::hami;
pub(crate) use product::product;

/// Chooses cards.
pub(crate) trait Rule {
    /// So many of these, which are enough.
    fn choose(&mut self, free: CardSet, wanted: u32, rng: &mut Rng) -> CardSet;
}

/// A rule by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// One of the product's policies, with nothing expected.
    Product(PolicyName),
    /// The best-effort policy of NVIDIA's go-gpuallocator.
    BestEffort,
    /// The `topology-aware` policy of HAMi.
    Hami,
    /// Any.
    Random,
}

/// A rule that goes by the free cards alone.
struct Steady<F> {
    decide: F,
    known: HashMap<(CardSet, u32), CardSet>,
}

struct Random;

// === impl Name ===

impl Name {
    /// The rules that are measured.
    pub(crate) const ALL: [Self; 5] = [
        Self::Product(PolicyName::Topology),
        Self::Product(PolicyName::LeastFragmentation),
        Self::BestEffort,
        Self::Hami,
        Self::Random,
    ];

    /// As people call it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Product(policy) => divvy_simulate::policy::Name::Product(policy).as_str(),
            Self::BestEffort => "go-gpuallocator",
            Self::Hami => "HAMi",
            Self::Random => "any cards",
        }
    }

    pub(crate) fn rule(self, machine: &Machine) -> Box<dyn Rule + '_> {
        let mut best_effort = BestEffort::new(machine);
        match self {
            Self::Product(policy) => steady(move |free, wanted| product(machine, policy, free, wanted)),
            Self::BestEffort => steady(move |free, wanted| best_effort.choose(free, wanted)),
            Self::Hami => steady(|free, wanted| hami(machine, free, wanted)),
            Self::Random => Box::new(Random),
        }
    }
}

fn steady<'m>(decide: impl FnMut(CardSet, u32) -> CardSet + 'm) -> Box<dyn Rule + 'm> {
    Box::new(Steady { decide, known: HashMap::new() })
}

// === impl Steady ===

impl<F: FnMut(CardSet, u32) -> CardSet> Rule for Steady<F> {
    fn choose(&mut self, free: CardSet, wanted: u32, _rng: &mut Rng) -> CardSet {
        *self.known.entry((free, wanted)).or_insert_with(|| (self.decide)(free, wanted))
    }
}

// === impl Random ===

impl Rule for Random {
    fn choose(&mut self, free: CardSet, wanted: u32, rng: &mut Rng) -> CardSet {
        positions(free).sample(rng, wanted as usize).into_iter().fold(0, |set, card| set | 1 << card)
    }
}

/// What both published rules give for a pair of cards: points for the distance by PCIe, and 100 for each NVLink between
/// them. (go-gpuallocator, `calculateGPUPairScore`; HAMi has taken it over.)
fn pair_score(machine: &Machine, sees_switches: bool, a: usize, b: usize) -> u64 {
    let distance = match machine.pcie.get(a, b) {
        Link::System => 10,
        Link::Node => 20,
        Link::HostBridge => 30,
        Link::MultiSwitch => 40,
        Link::SingleSwitch | Link::NvLink(_) => 50,
    };
    match machine.links.get(a, b) {
        Link::NvLink(links) if sees_switches || !machine.is_switched => distance + 100 * u64::from(links),
        _ => distance,
    }
}

/// The sum over all pairs of a set.
fn set_score(machine: &Machine, sees_switches: bool, set: CardSet) -> u64 {
    let pairs = positions(set).flat_map(|b| positions(set).take_while(move |a| *a < b).map(move |a| (a, b)));
    pairs.map(|(a, b)| pair_score(machine, sees_switches, a, b)).sum()
}
