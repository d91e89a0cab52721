//! The worst that may happen to one card, over every way in which the kubelet may draw from its pool.
//!
//! Draws are random subsets, so what happens to one card doesn't bind another: a plan fits if each card fits alone. For
//! a card it is enough to follow two cases side by side, its pooled slot still in the pool or taken, each at its most.

use divvy_api::pod::{ContainerKind, PodSum};
use divvy_api::{Card, Cores, Memory, Share};

use crate::card_free::ShareKinds;
use crate::node_state::Held;
use crate::reason::Reason;

/// What a pod may have done to a card so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// No slot of the card in the pool.
    unpooled: Option<Alive>,
    /// One slot of the card in the pool; there is never a second, because a container's cards are distinct.
    pooled: Option<Alive>,
    /// The pod's share of the card.
    pub(crate) peak: Share,
    /// Slots of the card that it has.
    pub(crate) slots: u32,
}

/// Sidecars and app containers on a card, at their most.
#[derive(Clone, Copy, Debug, Default)]
struct Alive {
    /// Memory of the card.
    memory: Memory,
    host: Memory,
    cores: Cores,
    any: bool,
    exclusive: bool,
}

/// Where a container's slot of the card comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Proposed by us.
    New,
    /// The pool, which the container empties.
    Drained,
    /// The pool, by chance.
    Drawn,
}

/// The card that containers come to, with what other pods hold of it.
#[derive(Clone, Copy)]
pub(crate) struct On<'a> {
    pub(crate) card: &'a Card,
    pub(crate) held: &'a Held,
    /// That of the card: a search asks for it thousands of times.
    pub(crate) memory_capacity: Memory,
}

/// Whether a card would take a share if nothing else were placed.
pub(crate) fn alone(on: On<'_>, share: Share) -> Result<(), Reason> {
    Load::default().admit(on, ContainerKind::App, share, Slot::New)
}

// === impl Load ===

impl Load {
    /// Adds a container; an error if some sequence of draws overfills the card or gives the container two slots of it.
    pub(crate) fn admit(&mut self, on: On<'_>, kind: ContainerKind, share: Share, slot: Slot) -> Result<(), Reason> {
        match (slot, self.pooled, self.unpooled) {
            (Slot::New, None, Some(alive)) => {
                self.slots = self.slots.saturating_add(1);
                self.start(on, alive, share)?;
                if kind == ContainerKind::Init {
                    (self.pooled, self.unpooled) = (Some(alive), None);
                } else {
                    self.unpooled = Some(alive.with(share));
                }
            }
            (Slot::New, ..) => return Err(Reason::OwnPod),
            (Slot::Drained | Slot::Drawn, None, _) => {}
            (Slot::Drained | Slot::Drawn, Some(alive), unpooled) => {
                self.start(on, alive, share)?;
                if kind != ContainerKind::Init {
                    self.unpooled = Some(alive.with(share).or(unpooled.unwrap_or_default()));
                    self.pooled = self.pooled.filter(|_| slot == Slot::Drawn);
                }
            }
        }
        if self.slots > on.held.free_slots(on.card) { Err(Reason::Slots) } else { Ok(()) }
    }

    /// Adds a container that holds the card already, whether it fits or not.
    pub(crate) fn allocate(&mut self, on: On<'_>, kind: ContainerKind, share: Share) {
        let alive = self.pooled.or(self.unpooled).unwrap_or_default();
        let slot = if self.is_pooled() { Slot::Drained } else { Slot::New };
        if self.admit(on, kind, share, slot).is_err() {
            let lends = kind == ContainerKind::Init;
            self.pooled = lends.then_some(alive);
            self.unpooled = (!lends).then(|| alive.with(share));
        }
    }

    /// Whether a slot of the card may be in the pool.
    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled.is_some()
    }

    /// Whether the pod has never had a slot of the card.
    pub(crate) fn is_fresh(&self) -> bool {
        self.slots == 0
    }

    /// Checks a container's start beside those that are alive.
    fn start(&mut self, on: On<'_>, alive: Alive, share: Share) -> Result<(), Reason> {
        let both = alive.with(share);
        let Alive { memory, host, cores, exclusive, .. } = both;
        let now = Share { memory: memory.saturating_add(host), host, cores, exclusive };
        self.peak = PodSum::max(self.peak, now);
        let On { card, held, memory_capacity } = on;
        let Share { cores, exclusive, .. } = self.peak;
        let memory = self.peak.on_card();
        if memory > memory_capacity {
            return Err(Reason::TooSmall { wanted: memory, capacity: memory_capacity });
        }
        if let Some(refused) = ShareKinds::beside(held).refuses(&Share { exclusive, ..share }) {
            return Err(refused);
        }
        if alive.any && (alive.exclusive || share.exclusive) {
            return Err(Reason::OwnPod);
        }
        let free = memory_capacity.saturating_sub(held.memory);
        if memory > free {
            return Err(Reason::Memory { wanted: memory, free });
        }
        let free = card.cores_capacity().saturating_sub(held.cores);
        if cores > free { Err(Reason::Cores { wanted: cores, free }) } else { Ok(()) }
    }
}

impl Default for Load {
    fn default() -> Self {
        Self { unpooled: Some(Alive::default()), pooled: None, peak: Share::default(), slots: 0 }
    }
}

// === impl Alive ===

impl Alive {
    fn with(self, share: Share) -> Self {
        Self {
            memory: self.memory.saturating_add(share.on_card()),
            host: self.host.saturating_add(share.host),
            cores: self.cores.saturating_add(share.cores),
            any: true,
            exclusive: self.exclusive || share.exclusive,
        }
    }

    /// The worst of both; each check asks only whether some draw breaks it, so they may come from different ones.
    fn or(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            host: self.host.max(other.host),
            cores: self.cores.max(other.cores),
            any: self.any || other.any,
            exclusive: self.exclusive || other.exclusive,
        }
    }
}
