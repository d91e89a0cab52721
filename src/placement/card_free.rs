//! Free amounts of one card.

use divvy_api::{Cores, Memory, Share};

use crate::card::{Card, Reason, size};

/// Free amounts of one card, in the few numbers that most questions take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CardFree {
    pub(crate) memory: Memory,
    pub(crate) cores: Cores,
    /// Nobody holds a share.
    pub(crate) whole: bool,
    /// Takes new shares at all.
    pub(crate) open: bool,
    /// The card is one of the plain count.
    pub(crate) is_plain: bool,
    /// [`Card::busy_steps`]. Not free capacity, but of most cards only these numbers are read.
    pub(crate) busy: u8,
}

// === impl CardFree ===

impl CardFree {
    pub(crate) fn of(card: &Card) -> Self {
        let held = &card.held;
        Self {
            memory: card.memory_capacity.saturating_sub(held.memory),
            cores: card.cores_capacity.saturating_sub(held.cores),
            whole: held.pods == 0,
            open: card.healthy && card.free_slots > 0 && !held.exclusive,
            is_plain: card.profile.is_none(),
            busy: card.busy_steps(),
        }
    }

    /// As much as either has.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            cores: self.cores.max(other.cores),
            whole: self.whole || other.whole,
            open: self.open || other.open,
            is_plain: self.is_plain || other.is_plain,
            busy: self.busy.min(other.busy),
        }
    }

    #[inline]
    pub(crate) fn fits(self, share: &Share) -> bool {
        self.open && share.memory <= self.memory && share.cores <= self.cores && (self.whole || !share.exclusive)
    }

    /// What is short for the share on an open card; `None` if nothing is, or if the card isn't open.
    pub(crate) fn lacks(self, share: &Share, memory_capacity: Memory) -> Option<Reason> {
        let Share { memory, cores, exclusive } = *share;
        let lacks = match () {
            () if memory > memory_capacity => Reason::TooSmall { wanted: memory, capacity: memory_capacity },
            () if exclusive && !self.whole => Reason::Shared,
            () if memory > self.memory => Reason::Memory { wanted: memory, free: self.memory },
            () if cores > self.cores => Reason::Cores { wanted: cores, free: self.cores },
            () => return None,
        };
        self.open.then_some(lacks)
    }

    /// In amounts that are equal on all models, so that a small card is left with less than a large one; more than
    /// nothing, so that fewer cards are better.
    #[inline]
    pub(crate) fn leftover(self) -> u64 {
        1 + size(self.memory, self.cores)
    }
}
