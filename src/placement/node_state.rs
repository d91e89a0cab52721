//! What a plan is made from: a node's cards, and what pods hold of them.

use std::sync::Arc;

use divvy_api::{Card, Cores, Memory, NodeCards, Share};

/// A node's cards, and what other pods hold of them: the pod to be placed is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Cards, links and what is the node's; shared by all states of the node.
    pub node: Arc<NodeCards>,
    /// By card.
    pub held: Box<[Held]>,
    /// Host memory that is booked for shares of cards that the node no longer lists.
    pub host_elsewhere: Memory,
}

/// Sum of the shares that pods hold of one card, each pod at its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Allocated memory of the card.
    pub memory: Memory,
    /// Host memory that is booked in addition: more than nothing if, and only if, the card's memory is oversubscribed.
    pub host: Memory,
    /// Allocated compute.
    pub cores: Cores,
    /// Whether one pod holds it exclusively.
    pub exclusive: bool,
    /// Pods that hold a share.
    pub pods: u32,
    /// Slots that pods hold; those of the pod to be placed count as free.
    pub slots: u32,
    /// Measured utilisation beyond what is allocated of the card, in percent; 0 where that isn't known or doesn't count.
    /// Ranks cards, and makes none unschedulable.
    pub busy: u8,
}

/// What a pod takes of one card at its peak, however the kubelet draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Position of the card.
    pub card: usize,
    /// The most that it holds at once.
    pub share: Share,
    /// Slots of the card that it may have.
    pub slots: u32,
}

/// In percent.
const BUSY_STEP: u8 = 25;

// === impl NodeState ===

impl NodeState {
    /// A node of whose cards nobody holds anything.
    pub fn empty(node: Arc<NodeCards>) -> Self {
        let held = vec![Held::default(); node.cards.len()].into();
        Self { node, held, host_elsewhere: Memory::ZERO }
    }

    /// The node's cards.
    #[inline]
    pub fn cards(&self) -> &[Card] {
        &self.node.cards
    }

    /// Each card with what is held of it.
    pub fn each(&self) -> impl Iterator<Item = (&Card, &Held)> + Clone {
        self.node.cards.iter().zip(&self.held)
    }

    /// Host memory that the node has left for oversubscription.
    pub fn host_memory_left(&self) -> Memory {
        let all = self.node.oversubscription.map_or(Memory::ZERO, |of| of.host_memory);
        let held: Memory = self.held.iter().map(|held| held.host).sum();
        all.saturating_sub(self.host_elsewhere.saturating_add(held))
    }

    /// Adds what pods take of the cards. Positions that don't exist are passed over.
    pub fn hold(&mut self, taken: impl IntoIterator<Item = Taken>) {
        for Taken { card, share, slots } in taken {
            if let Some(held) = self.held.get_mut(card) {
                *held = Held { slots: held.slots.saturating_add(slots), ..held.with(&share) };
            }
        }
    }
}

// === impl Held ===

impl Held {
    /// What is held with one pod more.
    #[must_use]
    pub fn with(self, share: &Share) -> Self {
        Self {
            memory: self.memory.saturating_add(share.on_card()),
            host: self.host.saturating_add(share.host),
            cores: self.cores.saturating_add(share.cores),
            exclusive: self.exclusive || share.exclusive,
            pods: self.pods.saturating_add(1),
            ..self
        }
    }

    /// Whether nobody holds anything.
    pub(crate) fn is_nothing(&self) -> bool {
        let Self { memory, host, cores, exclusive, pods, slots: _, busy: _ } = *self;
        memory.is_zero() && host.is_zero() && cores.units() == 0 && !exclusive && pods == 0
    }

    /// Slots of the card that are left.
    pub(crate) fn free_slots(&self, card: &Card) -> u32 {
        card.slots.saturating_sub(self.slots)
    }

    /// Steps of measured utilisation beyond what is allocated. They are coarse: measurements waver, and a few percent are no
    /// reason to fragment another card.
    pub(crate) fn busy_steps(&self) -> u8 {
        self.busy.min(100) / BUSY_STEP
    }
}
