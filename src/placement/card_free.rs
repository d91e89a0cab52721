//! Free amounts of one card.

use divvy_api::{Cores, Memory, Share};

use crate::card::{Card, Reason, size};

/// Free amounts of one card, in the few numbers that most questions take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CardFree {
    pub(crate) memory: Memory,
    pub(crate) cores: Cores,
    pub(crate) takes: ShareKinds,
    /// The card is one of the plain count.
    pub(crate) is_plain: bool,
    /// [`Card::busy_steps`]. Not free capacity, but of most cards only these numbers are read.
    pub(crate) busy: u8,
}

/// Kinds of shares that a card takes, if it has enough for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareKinds(u8);

// === impl ShareKinds ===

impl ShareKinds {
    /// All of the card.
    pub(crate) const WHOLE: Self = Self(1);
    /// Parts that are on the card.
    pub(crate) const PART: Self = Self(1 << 1);
    /// Parts with memory in the host's.
    const OVERSUBSCRIBED: Self = Self(1 << 2);
    const ALL: Self = Self(0b111);

    fn of(card: &Card) -> Self {
        match &card.held {
            held if !card.healthy || card.free_slots == 0 || held.exclusive => Self::default(),
            held if held.pods == 0 => Self::ALL,
            held if held.host.is_zero() => Self::PART,
            _ => Self::OVERSUBSCRIBED,
        }
    }

    #[inline]
    fn kind_of(share: &Share) -> Self {
        match share.exclusive {
            true => Self::WHOLE,
            false if share.host.is_zero() => Self::PART,
            false => Self::OVERSUBSCRIBED,
        }
    }

    #[inline]
    pub(crate) fn include(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }
}

// === impl Card ===

impl Card {
    /// Free part of the card, from 0 to 1: the mean of memory and compute. 0 without free memory, and if it takes no more shares.
    pub fn free_part(&self) -> f64 {
        let free = CardFree::of(self);
        let part = |free: u32, of: u32| f64::from(free) / f64::from(of.max(1));
        let mib = |memory: Memory| u32::try_from(memory.as_mib()).unwrap_or(u32::MAX);
        if free.takes == ShareKinds::default() || free.memory.is_zero() {
            return 0.0;
        }
        let memory = part(mib(free.memory), mib(self.memory_capacity));
        f64::midpoint(memory, part(free.cores.units(), self.cores_capacity.units()))
    }
}

// === impl CardFree ===

impl CardFree {
    pub(crate) fn of(card: &Card) -> Self {
        let held = &card.held;
        Self {
            memory: card.memory_capacity.saturating_sub(held.memory),
            cores: card.cores_capacity.saturating_sub(held.cores),
            takes: ShareKinds::of(card),
            is_plain: card.profile.is_none(),
            busy: card.busy_steps(),
        }
    }

    /// As much as either has.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            cores: self.cores.max(other.cores),
            takes: ShareKinds(self.takes.0 | other.takes.0),
            is_plain: self.is_plain || other.is_plain,
            busy: self.busy.min(other.busy),
        }
    }

    #[inline]
    pub(crate) fn fits(self, share: &Share) -> bool {
        self.takes.include(ShareKinds::kind_of(share)) && share.on_card() <= self.memory && share.cores <= self.cores
    }

    /// What is short for a share that is all on the card; `None` if nothing is, or if the card takes no shares at all.
    pub(crate) fn lacks(self, share: &Share, memory_capacity: Memory) -> Option<Reason> {
        let Share { memory, cores, exclusive, .. } = *share;
        let lacks = match () {
            () if memory > memory_capacity => Reason::TooSmall { wanted: memory, capacity: memory_capacity },
            () if exclusive && !self.takes.include(ShareKinds::WHOLE) => Reason::Shared,
            () if !exclusive && !self.takes.include(ShareKinds::PART) => Reason::Oversubscribed,
            () if memory > self.memory => Reason::Memory { wanted: memory, free: self.memory },
            () if cores > self.cores => Reason::Cores { wanted: cores, free: self.cores },
            () => return None,
        };
        (self.takes != ShareKinds::default()).then_some(lacks)
    }

    /// In amounts that are equal on all models, so that a small card is left with less than a large one; more than
    /// nothing, so that fewer cards are better.
    #[inline]
    pub(crate) fn leftover(self) -> u64 {
        1 + size(self.memory, self.cores)
    }
}
