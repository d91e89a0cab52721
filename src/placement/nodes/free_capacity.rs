//! Free capacity of a node: CPU, and parts of cards.

use std::sync::Arc;

use divvy_api::{Card, Cores, Memory, MigProfile, NodeCards, Share};

use crate::card_free::{CardFree, ShareKinds, size};
use crate::node_state::NodeState;

/// Properties of a card that decide which requests may use it, whatever is free.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hardware {
    /// Product name as NVML gives it.
    pub model: Arc<str>,
    /// MIG profile of the resource by which it is requested.
    pub profile: Option<MigProfile>,
    /// Physical memory, which percentages are of.
    pub memory: Memory,
    /// Whether it is a MIG instance.
    pub is_instance: bool,
    /// Whether it is allocated whole or not at all.
    pub undivided: bool,
}

/// A node's free capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FreeCapacity {
    /// Free thousandths of a CPU core; `None` if it isn't known: then it is enough for everybody.
    pub cpu_milli: Option<u32>,
    /// One a card. A card that takes nothing more is there all the same, with nothing left.
    pub(crate) cards: Vec<Left>,
}

/// Free capacity of one card, in the compact form that forecasts hash and compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Left {
    /// Number of its kind of hardware.
    pub(crate) hardware: u16,
    /// Memory and compute together, in thousandths of a card.
    pub(crate) size: u32,
    /// In MiB.
    pub(crate) memory: u32,
    pub(crate) cores: u16,
    /// Nobody holds a share.
    pub(crate) whole: bool,
}

// === impl Hardware ===

impl Hardware {
    /// Hardware of a node's card.
    pub fn new(card: &Card, node: &NodeCards) -> Self {
        Self {
            model: Arc::clone(&card.model),
            profile: card.requested_profile().cloned(),
            memory: card.memory,
            is_instance: card.id.is_instance(),
            undivided: node.undivided,
        }
    }
}

// === impl FreeCapacity ===

impl FreeCapacity {
    /// Free capacity of a node, each of whose cards has the number of its hardware.
    pub fn new(cpu_milli: Option<u32>, state: &NodeState, hardware: &[u16]) -> Self {
        let free = state.each().map(|(card, held)| CardFree::new(card, held));
        Self { cpu_milli, cards: free.zip(hardware).map(|(free, hardware)| Left::new(free, *hardware)).collect() }
    }

    /// Takes a pod's CPU request.
    pub fn take_cpu(&mut self, milli: u32) {
        self.cpu_milli = self.cpu_milli.map(|free| free.saturating_sub(milli));
    }

    /// Takes a share of the card at this position.
    pub fn take(&mut self, card: usize, share: &Share) {
        if let Some(left) = self.cards.get_mut(card) {
            left.give(share);
        }
    }

    /// Free capacity of all cards, in thousandths of one with 80 GiB of memory.
    pub fn size(&self) -> u32 {
        self.cards.iter().map(|left| left.size).sum()
    }

    /// The card at this position before and after it gives a share.
    pub(crate) fn change(&self, (card, share): &(usize, Share)) -> Option<(usize, Left, Left)> {
        let before = *self.cards.get(*card)?;
        let mut after = before;
        after.give(share);
        Some((*card, before, after))
    }

    /// With the cards in an order of their own: nodes that have the same left are equal.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.cards.sort_unstable();
        self
    }
}

// === impl Left ===

impl Left {
    fn new(free: CardFree, hardware: u16) -> Self {
        // Expected requests are taken for ones whose memory is all on the card.
        if !free.takes.include(ShareKinds::PART) {
            return Self { hardware, ..Self::default() };
        }
        let memory = u32::try_from(free.memory.as_mib()).unwrap_or(u32::MAX);
        let cores = u16::try_from(free.cores.units()).unwrap_or(u16::MAX);
        Self { hardware, size: size_of(memory, cores), memory, cores, whole: free.takes.include(ShareKinds::WHOLE) }
    }

    fn give(&mut self, share: &Share) {
        let memory = u32::try_from(share.memory.as_mib()).unwrap_or(u32::MAX);
        let cores = u16::try_from(share.cores.units()).unwrap_or(u16::MAX);
        self.take(memory, cores, share.exclusive || !share.host.is_zero());
    }

    #[inline]
    pub(crate) fn take(&mut self, memory: u32, cores: u16, is_exclusive: bool) {
        let left =
            if is_exclusive { (0, 0) } else { (self.memory.saturating_sub(memory), self.cores.saturating_sub(cores)) };
        (self.memory, self.cores) = left;
        (self.size, self.whole) = (size_of(self.memory, self.cores), false);
    }
}

pub(crate) fn size_of(memory: u32, cores: u16) -> u32 {
    u32::try_from(size(Memory::mib(memory.into()), Cores::new(cores.into()))).unwrap_or(u32::MAX)
}
