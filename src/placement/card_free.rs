//! Free amounts of one card.

use divvy_api::{Card, Cores, Memory, Share};

use crate::node_state::{Held, NodeState};
use crate::reason::Reason;

/// Memory that counts as much as one card's compute, in MiB: the unit has to be the same on all cards and nodes.
const REFERENCE_MEMORY: u64 = 80 << 10;

/// Memory and compute together, in thousandths of a card with 80 GiB.
#[inline]
pub(crate) fn size(memory: Memory, cores: Cores) -> u64 {
    let memory = memory.as_mib().saturating_mul(1000) / REFERENCE_MEMORY;
    u64::midpoint(memory, u64::from(cores.units()) * 10)
}

/// Allocatable memory and compute of a card together, in thousandths of a card with 80 GiB.
pub fn capacity(card: &Card) -> u64 {
    size(card.memory_capacity(), card.cores_capacity())
}

/// Free amounts of one card, in the few numbers that most questions take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CardFree {
    pub(crate) memory: Memory,
    pub(crate) cores: Cores,
    pub(crate) takes: ShareKinds,
    /// The card is one of the plain count.
    pub(crate) is_plain: bool,
    /// [`Held::busy_steps`]. Not free capacity, but of most cards only these numbers are read.
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

    fn taken_by(card: &Card, held: &Held) -> Self {
        let takes_none = !card.is_healthy() || held.free_slots(card) == 0;
        if takes_none { Self::default() } else { Self::beside(held) }
    }

    /// Kinds that can be on a card beside what is held of it.
    pub(crate) fn beside(held: &Held) -> Self {
        match held {
            held if held.exclusive => Self::default(),
            held if held.pods == 0 => Self::ALL,
            held if held.host.is_zero() => Self::PART,
            _ => Self::OVERSUBSCRIBED,
        }
    }

    /// Why a share isn't of these kinds, if so; a card that takes none is held exclusively.
    pub(crate) fn refuses(self, share: &Share) -> Option<Reason> {
        match Self::kind_of(share) {
            kind if self.include(kind) => None,
            _ if self == Self::default() => Some(Reason::Exclusive),
            Self::WHOLE => Some(Reason::Shared),
            Self::PART => Some(Reason::Oversubscribed),
            _ => Some(Reason::NotOversubscribed),
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

// === impl NodeState ===

impl NodeState {
    /// Free parts of its cards together: of each the mean of memory and compute, from 0 to 1. 0 without free memory, and if
    /// the card takes no more shares.
    pub fn free_parts(&self) -> f64 {
        self.each().map(|(card, held)| free_part(card, held)).sum()
    }
}

fn free_part(card: &Card, held: &Held) -> f64 {
    let free = CardFree::new(card, held);
    let part = |free: u32, of: u32| f64::from(free) / f64::from(of.max(1));
    let mib = |memory: Memory| u32::try_from(memory.as_mib()).unwrap_or(u32::MAX);
    if free.takes == ShareKinds::default() || free.memory.is_zero() {
        return 0.0;
    }
    let memory = part(mib(free.memory), mib(card.memory_capacity()));
    f64::midpoint(memory, part(free.cores.units(), card.cores_capacity().units()))
}

// === impl CardFree ===

impl CardFree {
    pub(crate) fn new(card: &Card, held: &Held) -> Self {
        Self {
            memory: card.memory_capacity().saturating_sub(held.memory),
            cores: card.cores_capacity().saturating_sub(held.cores),
            takes: ShareKinds::taken_by(card, held),
            is_plain: card.requested_profile().is_none(),
            busy: held.busy_steps(),
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
        let Share { memory, cores, .. } = *share;
        let lacks = match () {
            () if memory > memory_capacity => Reason::TooSmall { wanted: memory, capacity: memory_capacity },
            () if let Some(refused) = self.takes.refuses(share) => refused,
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
