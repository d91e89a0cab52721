//! What the best choice would be, found by trying all sets.

use std::collections::HashMap;

use divvy_api::Link;

use super::machine::subsets;
use super::{CardSet, Machine};

/// The best of one machine's sets; what was found out is remembered.
pub(crate) struct Optimum<'m> {
    machine: &'m Machine,
    /// By the free cards and the size.
    best: HashMap<(CardSet, u32), Link>,
    /// By the size: sets as good as the empty machine's best.
    perfect: HashMap<u32, Vec<CardSet>>,
    /// By the free cards and the size.
    apart: HashMap<(CardSet, u32), u32>,
}

// === impl Optimum ===

impl<'m> Optimum<'m> {
    pub(crate) fn new(machine: &'m Machine) -> Self {
        Self { machine, best: HashMap::new(), perfect: HashMap::new(), apart: HashMap::new() }
    }

    /// The best worst link of all sets of these cards.
    pub(crate) fn best(&mut self, free: CardSet, size: u32) -> Link {
        let machine = self.machine;
        let best = || subsets(free, size).into_iter().map(|set| machine.worst_link(set)).max();
        *self.best.entry((free, size)).or_insert_with(|| best().unwrap_or_default())
    }

    /// How many sets of this size there are at once among these cards, all as good as the empty machine's best.
    pub(crate) fn apart(&mut self, free: CardSet, size: u32) -> u32 {
        if free.count_ones() < size {
            return 0;
        }
        if let Some(known) = self.apart.get(&(free, size)) {
            return *known;
        }
        let first = free & free.wrapping_neg();
        let with_first = |set: &CardSet| set & !free == 0 && set & first != 0;
        let sets: Vec<CardSet> = self.perfect(size).iter().copied().filter(with_first).collect();
        let without = self.apart(free & !first, size);
        let most = sets.into_iter().map(|set| 1 + self.apart(free & !set, size)).fold(without, u32::max);
        self.apart.insert((free, size), most);
        most
    }

    fn perfect(&mut self, size: u32) -> &[CardSet] {
        let (machine, best) = (self.machine, self.best(self.machine.all(), size));
        let is_perfect = |set: &CardSet| machine.worst_link(*set) == best;
        let find = || subsets(machine.all(), size).into_iter().filter(is_perfect).collect();
        self.perfect.entry(size).or_insert_with(find)
    }
}
