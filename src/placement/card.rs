//! A card as placement sees it, and why a request doesn't fit on it.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use divvy_api::{CardId, Cores, Memory, MigProfile};

use crate::free::size;

/// A card of a node, with what other pods hold of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The card's UUID.
    pub id: CardId,
    /// Product name as NVML gives it; shared by whoever keeps the cards of many nodes.
    pub model: Arc<str>,
    /// The MIG profile that it is asked for by; `None`: one of the plain count.
    pub profile: Option<MigProfile>,
    /// Physical memory, which percentages are of.
    pub memory: Memory,
    /// What may be promised: memory × the configured scale.
    pub memory_capacity: Memory,
    /// What may be promised: 100 × the configured scale.
    pub cores_capacity: Cores,
    /// Gives new shares.
    pub healthy: bool,
    /// NUMA node, where known.
    pub numa: Option<u32>,
    /// Slots that no other pod holds; those of the pod to be placed count as free.
    pub free_slots: u32,
    /// Shares of other pods; the pod to be placed is left out.
    pub held: Held,
    /// Given whole or not at all, as each card of its node is.
    pub undivided: bool,
    /// Percent of its time in which it was seen at work beyond what is promised of it; 0 where that isn't known or isn't
    /// to count. Ranks cards, and keeps no pod from one.
    pub busy: u8,
}

/// Sum of the shares that pods hold of one card, each pod at its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Promised memory.
    pub memory: Memory,
    /// Promised compute.
    pub cores: Cores,
    /// One of the holders holds it alone.
    pub exclusive: bool,
    /// Pods that hold a share.
    pub pods: u32,
}

/// Why a card can't take a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Sick.
    #[error("unhealthy")]
    Unhealthy,
    /// `divvy.dev/card-model` or `avoid-card-model`.
    #[error("model {0} not allowed by the pod")]
    Model(String),
    /// Of another kind than the container asks for: another MIG profile, or no instance at all.
    #[error("of another kind")]
    Kind,
    /// `divvy.dev/card-uuid` or `avoid-card-uuid`.
    #[error("card not allowed by the pod")]
    Uuid,
    /// `divvy.dev/tier: mig`, and the card is a GPU.
    #[error("no MIG instance")]
    NoInstance,
    /// Not enough memory left.
    #[error("{wanted} memory wanted, {free} free")]
    Memory {
        /// What the request needs on this card.
        wanted: Memory,
        /// What is left.
        free: Memory,
    },
    /// The card is too small, even empty.
    #[error("{wanted} memory wanted, the card has {capacity}")]
    TooSmall {
        /// What the request needs on this card.
        wanted: Memory,
        /// What the card has.
        capacity: Memory,
    },
    /// Not enough compute left.
    #[error("{wanted} cores wanted, {free} free")]
    Cores {
        /// What the request needs.
        wanted: Cores,
        /// What is left.
        free: Cores,
    },
    /// The request is exclusive and others hold shares.
    #[error("wanted alone, shared by {pods} other pod{}", if *.pods == 1 { "" } else { "s" })]
    Shared {
        /// Pods that hold a share.
        pods: u32,
    },
    /// Somebody holds it alone.
    #[error("held exclusively by another pod")]
    Exclusive,
    /// No slot left.
    #[error("all slots taken")]
    Slots,
    /// Taken by other containers of the same pod.
    #[error("needed by other containers of the pod")]
    OwnPod,
    /// Not on the NUMA node that the others are on, or its NUMA node isn't known.
    #[error("on another NUMA node")]
    Numa,
    /// The kubelet gives the container a slot of an earlier init container and asks nobody.
    #[error("not asked for, as the kubelet reuses an init container's card")]
    Reused,
}

/// Reasons of all cards in a line: equal ones together, the most frequent first, and only the best of those that differ
/// in what there is. `None` is a card that alone would do.
pub fn summary(reasons: &[Option<Reason>]) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for reason in reasons.iter().flatten() {
        match groups.iter_mut().find(|group| group.best.alike(reason)) {
            Some(group) => group.add(reason),
            None => groups.push(Group { best: reason, cards: 1, differ: false }),
        }
    }
    groups.sort_by_key(|group| Reverse(group.cards));
    let mut lines: Vec<String> = groups.iter().map(ToString::to_string).collect();
    match reasons.iter().filter(|reason| reason.is_none()).count() {
        0 if reasons.is_empty() => lines.push("the node has no cards".to_owned()),
        0 => {}
        1 => lines.push("1 card would do, which is too few".to_owned()),
        cards => lines.push(format!("{cards} cards would do, which is too few")),
    }
    lines.join("; ")
}

/// In percent.
const BUSY_STEP: u8 = 25;

/// What keeps a request from the cards of a node, without amounts: many nodes have one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lacking(u16);

/// Cards with much the same reason.
struct Group<'a> {
    best: &'a Reason,
    cards: usize,
    differ: bool,
}

// === impl Card ===

impl Card {
    /// What may be promised of it, memory and compute together, in thousandths of a card with 80 GiB.
    pub fn size(&self) -> u64 {
        size(self.memory_capacity, self.cores_capacity)
    }

    /// How many steps it is busier than promised. They are coarse, as what is measured wavers, and a few percent are no
    /// reason to leave another card's room in pieces.
    pub(crate) fn busy_steps(&self) -> u8 {
        self.busy.min(100) / BUSY_STEP
    }
}

// === impl Lacking ===

impl Lacking {
    const WORDS: [&str; 14] = [
        "unhealthy cards",
        "cards of models that the pod doesn't allow",
        "cards of another kind",
        "cards that the pod doesn't allow",
        "too little memory left",
        "cards too small",
        "too little compute left",
        "cards shared by others",
        "cards held exclusively",
        "all slots taken",
        "cards needed by other containers of the pod",
        "cards on another NUMA node",
        "an init container's card reused",
        "cards that are no MIG instances",
    ];

    /// Of these reasons.
    pub fn of(reasons: &[Option<Reason>]) -> Self {
        reasons.iter().flatten().fold(Self::default(), Self::with)
    }

    #[must_use]
    pub(crate) fn with(self, reason: &Reason) -> Self {
        let word = match reason {
            Reason::Unhealthy => 0,
            Reason::Model(_) => 1,
            Reason::Kind => 2,
            Reason::Uuid => 3,
            Reason::Memory { .. } => 4,
            Reason::TooSmall { .. } => 5,
            Reason::Cores { .. } => 6,
            Reason::Shared { .. } => 7,
            Reason::Exclusive => 8,
            Reason::Slots => 9,
            Reason::OwnPod => 10,
            Reason::Numa => 11,
            Reason::Reused => 12,
            Reason::NoInstance => 13,
        };
        Self(self.0 | 1 << word)
    }
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Self::WORDS.iter().enumerate().filter(|(word, _)| self.0 & 1 << word != 0);
        let words: Vec<&str> = words.map(|(_, text)| *text).collect();
        f.write_str(if words.is_empty() { "too few cards" } else { "" })?;
        f.write_str(&words.join("; "))
    }
}

// === impl Group ===

impl<'a> Group<'a> {
    fn add(&mut self, reason: &'a Reason) {
        self.cards += 1;
        self.differ |= reason != self.best;
        if reason.left() > self.best.left() {
            self.best = reason;
        }
    }
}

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} card{}: ", self.cards, if self.cards == 1 { "" } else { "s" })?;
        match self.best {
            Reason::Memory { wanted, free } if self.differ => write!(f, "{wanted} memory wanted, at most {free} free"),
            Reason::TooSmall { wanted, capacity } if self.differ => {
                write!(f, "{wanted} memory wanted, the largest has {capacity}")
            }
            Reason::Cores { wanted, free } if self.differ => write!(f, "{wanted} cores wanted, at most {free} free"),
            reason => reason.fmt(f),
        }
    }
}

// === impl Reason ===

impl Reason {
    /// Equal, or differing only in how much there is.
    fn alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory { wanted: one, .. }, Self::Memory { wanted: two, .. })
            | (Self::TooSmall { wanted: one, .. }, Self::TooSmall { wanted: two, .. }) => one == two,
            (Self::Cores { wanted: one, .. }, Self::Cores { wanted: two, .. }) => one == two,
            (one, two) => one == two,
        }
    }

    /// How much there is of what is short.
    fn left(&self) -> u64 {
        match self {
            Self::Memory { free, .. } => free.as_mib(),
            Self::TooSmall { capacity, .. } => capacity.as_mib(),
            Self::Cores { free, .. } => free.units().into(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_groups_cards_by_reason() {
        let memory = |free: u64| Some(Reason::Memory { wanted: Memory::mib(40 << 10), free: Memory::mib(free << 10) });
        let reasons = [
            memory(12),
            Some(Reason::Exclusive),
            memory(12),
            Some(Reason::Unhealthy),
            Some(Reason::Exclusive),
            memory(12),
        ];
        assert_eq!(
            summary(&reasons),
            "3 cards: 40Gi memory wanted, 12Gi free; 2 cards: held exclusively by another pod; 1 card: unhealthy"
        );
        assert_eq!(
            summary(&[memory(3), memory(12), memory(5), None]),
            "3 cards: 40Gi memory wanted, at most 12Gi free; 1 card would do, which is too few"
        );
        let too_small =
            |gib: u64| Some(Reason::TooSmall { wanted: Memory::mib(40 << 10), capacity: Memory::mib(gib << 10) });
        assert_eq!(
            summary(&[too_small(5), too_small(20), too_small(10)]),
            "3 cards: 40Gi memory wanted, the largest has 20Gi"
        );
        assert_eq!(summary(&[None, None]), "2 cards would do, which is too few");
        assert_eq!(summary(&[Some(Reason::Shared { pods: 1 })]), "1 card: wanted alone, shared by 1 other pod");
        assert_eq!(summary(&[]), "the node has no cards");
    }
}
