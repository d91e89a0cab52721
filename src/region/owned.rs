//! A region made of ordinary values, for tests and models: of any number of slots, and with loom's atomics.

use std::vec::Vec;

use crate::layout::{Card, Header, Region, Slot, Use};
use crate::sync::Ordering;

/// What a [`Region`] looks at.
#[derive(Debug)]
pub struct Owned {
    header: Header,
    cards: Vec<Card>,
    slots: Vec<Slot>,
    uses: Vec<Use>,
}

// === impl Owned ===

impl Owned {
    /// A new region, all of whose slots are free.
    pub fn new(cards: usize, slots: usize) -> Self {
        Self { header: Header::default(), cards: many(cards), slots: many(slots), uses: many(cards * slots) }
    }

    /// The same, with slots below `high` in use.
    pub fn with_high(cards: usize, slots: usize, high: u32) -> Self {
        let owned = Self::new(cards, slots);
        owned.header.high.store(high, Ordering::Relaxed);
        owned
    }

    /// The view of it.
    pub fn region(&self) -> Region<'_> {
        Region { header: &self.header, cards: &self.cards, slots: &self.slots, uses: &self.uses }
    }

    /// Leaves bytes published in a slot, as a process does that is killed in the middle of a reservation.
    pub fn leave_tentative(&self, slot: usize, bytes: u64) {
        self.uses[slot].tentative.store(bytes, Ordering::Relaxed);
    }
}

fn many<T: Default>(count: usize) -> Vec<T> {
    (0..count).map(|_| T::default()).collect()
}
