//! Free capacity of every host: CPU, host memory and cards. The simulator's own account, which all policies are measured by.

use rand::seq::SliceRandom as _;

use crate::Rng;
use crate::workload::{Kind, Machine, Part, Taints, Workload};

/// A set of a host's cards, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cards(u32);

/// Where a pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Position of the host.
    pub host: usize,
    /// Cards of the host that the pod shares or holds.
    pub cards: Cards,
}

/// A Node and what is free of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Position among the workload's machines.
    pub machine: usize,
    /// Model of its cards, by number.
    pub model: usize,
    /// Taints that keep off pods which don't tolerate them.
    pub taints: Taints,
    /// Free thousandths of a CPU core.
    pub cpu: u32,
    /// Free host memory in MiB.
    pub memory: u32,
    /// Free part of each card.
    pub cards: Vec<Part>,
    /// Grows with every change, from 1.
    pub revision: u32,
}

/// All hosts. Where policies speak of the first of some hosts it is the first in this order.
#[derive(Clone, Debug)]
pub struct Cluster {
    hosts: Vec<Host>,
    /// Thousandths of all cards.
    capacity: u64,
    /// Thousandths of cards that pods hold: the mean of compute and memory. A half is exact.
    allocated: f64,
}

// === impl Cards ===

impl Cards {
    /// One card.
    pub fn one(card: usize) -> Self {
        Self(1 << card)
    }

    /// Positions, in order.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        (0..u32::BITS as usize).filter(move |card| self.0 >> card & 1 == 1)
    }
}

impl FromIterator<usize> for Cards {
    fn from_iter<I: IntoIterator<Item = usize>>(cards: I) -> Self {
        Self(cards.into_iter().fold(0, |set, card| set | 1 << card))
    }
}

// === impl Host ===

impl Host {
    /// A machine, by its number, without pods.
    fn new(machine: usize, spec: &Machine) -> Self {
        let Machine { cpu, memory, model, taints, .. } = *spec;
        let cards = vec![Part::WHOLE; spec.cards as usize];
        Self { machine, model, taints, cpu, memory, cards, revision: 1 }
    }

    /// Whether taints, CPU, host memory and the model of the cards suit a pod.
    pub fn suits_beside_cards(&self, kind: &Kind) -> bool {
        self.fits_beside_cards(kind) && (kind.cards == 0 || kind.models.contain(self.model))
    }

    /// Whether taints, CPU and host memory suit a pod.
    pub fn fits_beside_cards(&self, kind: &Kind) -> bool {
        self.cpu >= kind.cpu && self.memory >= kind.memory && kind.tolerates.include(self.taints)
    }

    /// Whether a pod fits.
    pub fn fits(&self, kind: &Kind) -> bool {
        self.suits_beside_cards(kind) && self.fitting(kind).count() >= kind.cards as usize
    }

    /// Cards that a pod could use.
    pub fn fitting(&self, kind: &Kind) -> impl Iterator<Item = usize> {
        let part = kind.part;
        let cards = if kind.cards == 0 { &[][..] } else { &*self.cards };
        cards.iter().enumerate().filter(move |(_, free)| free.covers(part)).map(|(card, _)| card)
    }

    /// The first cards that a pod of several could use, or the one with the least free, compute and memory together.
    pub fn tightest(&self, kind: &Kind) -> Cards {
        match kind.cards {
            1 => self.fitting(kind).min_by_key(|card| self.cards[*card].sum()).into_iter().collect(),
            cards => self.fitting(kind).take(cards as usize).collect(),
        }
    }

    /// Free thousandths of all its cards, of compute and memory together: 2000 of a whole card.
    pub fn free(&self) -> u32 {
        self.cards.iter().map(|free| free.sum()).sum()
    }

    /// Cards that nobody uses.
    pub fn whole_cards(&self) -> usize {
        self.cards.iter().filter(|free| **free == Part::WHOLE).count()
    }

    /// The host with one more pod on it.
    #[must_use]
    pub fn with(&self, kind: &Kind, cards: Cards) -> Self {
        let mut host = self.clone();
        host.take(kind, cards);
        host
    }

    fn take(&mut self, kind: &Kind, cards: Cards) {
        self.revision += 1;
        self.cpu -= kind.cpu;
        self.memory -= kind.memory;
        cards.positions().for_each(|card| self.cards[card] -= kind.part);
    }

    fn give_back(&mut self, kind: &Kind, cards: Cards) {
        self.revision += 1;
        self.cpu += kind.cpu;
        self.memory += kind.memory;
        cards.positions().for_each(|card| self.cards[card] += kind.part);
    }
}

// === impl Cluster ===

impl Cluster {
    /// An empty cluster, in an order that is drawn once: the published policies break ties by it.
    pub fn new(workload: &Workload, rng: &mut Rng) -> Self {
        let mut order: Vec<usize> = (0..workload.machines.len()).collect();
        order.shuffle(rng);
        Self::in_order(workload, order)
    }

    /// An empty cluster, in this order of the machines.
    pub fn in_order(workload: &Workload, order: impl IntoIterator<Item = usize>) -> Self {
        let host = |machine: usize| Host::new(machine, &workload.machines[machine]);
        Self { hosts: order.into_iter().map(host).collect(), capacity: workload.capacity(), allocated: 0.0 }
    }

    /// All hosts, in order.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The part of all cards that pods hold, in percent.
    pub fn allocated(&self) -> f64 {
        self.percent(self.allocated)
    }

    /// Thousandths of cards as a part of all, in percent.
    pub fn percent(&self, milli: f64) -> f64 {
        milli * 100.0 / self.capacity as f64
    }

    /// Puts a pod where it fits.
    pub fn place(&mut self, kind: &Kind, place: Place) {
        debug_assert!(self.holds(kind, place), "{kind:?} doesn't fit at {place:?}");
        self.hosts[place.host].take(kind, place.cards);
        self.allocated += kind.demand();
    }

    /// Takes a pod away from where it was put.
    pub fn remove(&mut self, kind: &Kind, place: Place) {
        self.hosts[place.host].give_back(kind, place.cards);
        self.allocated -= kind.demand();
    }

    fn holds(&self, kind: &Kind, Place { host, cards }: Place) -> bool {
        let host = &self.hosts[host];
        let mut count = 0;
        let fits = |card: usize| {
            count += 1;
            host.cards[card].covers(kind.part)
        };
        host.suits_beside_cards(kind) && cards.positions().all(fits) && count == kind.cards
    }
}
