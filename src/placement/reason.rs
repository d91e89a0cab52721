//! Why a card can't take a request.

use std::fmt;

use divvy_api::card::ComputeMode;
use divvy_api::{Cores, Memory, Tier};

/// Why a card can't take a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Unhealthy.
    #[error("unhealthy")]
    Unhealthy,
    /// `divvy.dev/card-model` or `avoid-card-model`.
    #[error("model {0} not allowed by the pod")]
    Model(String),
    /// Another resource than the container requests: another MIG profile, or no instance at all.
    #[error("of another resource")]
    Kind,
    /// `divvy.dev/card-uuid` or `avoid-card-uuid`.
    #[error("UUID not allowed by the pod")]
    Uuid,
    /// `divvy.dev/tier` is a stronger one.
    #[error("of tier {0}")]
    Tier(Tier),
    /// `divvy.dev/tier: mig`, and the card is a GPU.
    #[error("not a MIG instance")]
    NoInstance,
    /// A part of it is requested, and the driver allows one process on it.
    #[error("{}", ComputeMode::ExclusiveProcess.objection().unwrap_or_default())]
    ComputeMode,
    /// Not enough memory left.
    #[error("insufficient memory: {wanted} requested, {free} free")]
    Memory {
        /// What the request needs on this card.
        wanted: Memory,
        /// What is left.
        free: Memory,
    },
    /// The card is too small, even empty.
    #[error("too small: {wanted} requested, {capacity} in total")]
    TooSmall {
        /// What the request needs on this card.
        wanted: Memory,
        /// What the card has.
        capacity: Memory,
    },
    /// Other pods hold shares whose memory isn't all on the card, and these need no more than the card has.
    #[error("has pods with oversubscribed memory")]
    Oversubscribed,
    /// Oversubscribed memory is requested, and other pods hold memory that is all on the card.
    #[error("has pods without oversubscribed memory")]
    NotOversubscribed,
    /// `divvy.dev/oversubscribe`, and the node's memory isn't to be oversubscribed.
    #[error("on a node that doesn't oversubscribe memory")]
    NoOversubscription,
    /// Not enough host memory left on the card's node.
    #[error("insufficient host memory for oversubscription: {wanted} needed, {free} left on the node")]
    HostMemory {
        /// What the pod needs in all.
        wanted: Memory,
        /// What the node has left for it.
        free: Memory,
    },
    /// Not enough compute left.
    #[error("insufficient cores: {wanted} requested, {free} free")]
    Cores {
        /// What the request needs.
        wanted: Cores,
        /// What is left.
        free: Cores,
    },
    /// The request is exclusive and others hold shares.
    #[error("in use by other pods")]
    Shared,
    /// Another pod holds it exclusively.
    #[error("held exclusively by another pod")]
    Exclusive,
    /// No slot left.
    #[error("no free slots")]
    Slots,
    /// Taken by other containers of the same pod.
    #[error("needed by other containers of the pod")]
    OwnPod,
    /// `divvy.dev/same-card`, and the pod has something of another card.
    #[error("not the GPU of the pod's other containers")]
    OtherCard,
    /// Not on the NUMA node that the others are on, or its NUMA node isn't known.
    #[error("on another NUMA node")]
    Numa,
    /// The kubelet gives the container a slot of an earlier init container and asks nobody.
    #[error("reused from an init container: the kubelet doesn't ask for others")]
    Reused,
}

/// Reasons of all cards of a node in kube-scheduler's form: `Insufficient GPUs (2 short of memory, largest free 10Gi; 1
/// unhealthy)`. Reasons are counted and named once, with the figure of the GPU that has most, so that the text stays as it
/// is while other pods come and go elsewhere. `None` is a card that alone would do.
pub fn summary(reasons: &[Option<Reason>]) -> String {
    if reasons.is_empty() {
        return "no GPUs".to_owned();
    }
    let mut details = Vec::new();
    for (phrase, text) in Lacking::PHRASES.iter().enumerate() {
        let alike = || reasons.iter().flatten().filter(|reason| reason.phrase() == phrase);
        let most = alike().filter_map(Reason::figure).max_by_key(|(amount, _)| *amount);
        let most = most.map(|(_, figure)| format!(", {figure}")).unwrap_or_default();
        details.extend((alike().count() > 0).then(|| format!("{} {text}{most}", alike().count())));
    }
    let suitable = reasons.iter().filter(|reason| reason.is_none()).count();
    details.extend((suitable > 0).then(|| format!("{suitable} suitable")));
    format!("Insufficient GPUs ({})", details.join("; "))
}

/// What keeps a request from the cards of a node, without amounts: many nodes have one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lacking(u32);

/// How much there is of what is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Amount {
    Memory(Memory),
    Cores(Cores),
}

// === impl Lacking ===

impl Lacking {
    /// One for each kind of [`Reason`], by [`Reason::phrase`].
    const PHRASES: [&str; 21] = [
        "unhealthy",
        "of a model that the pod doesn't allow",
        "of another resource",
        "with a UUID that the pod doesn't allow",
        "short of memory",
        "too small",
        "short of cores",
        "in use by other pods",
        "held exclusively by another pod",
        "without free slots",
        "needed by other containers of the pod",
        "on another NUMA node",
        "reused from an init container",
        "not a MIG instance",
        "holding pods with oversubscribed memory",
        "holding pods without oversubscribed memory",
        "without memory to oversubscribe",
        "short of host memory",
        "other than that of the pod's other containers",
        "of a weaker tier than the pod requests",
        "in a compute mode that allows no parts",
    ];

    /// Kinds of these reasons.
    pub fn from_reasons(reasons: &[Option<Reason>]) -> Self {
        reasons.iter().flatten().fold(Self::default(), Self::with)
    }

    #[must_use]
    pub(crate) fn with(self, reason: &Reason) -> Self {
        Self(self.0 | 1 << reason.phrase())
    }
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phrases = Self::PHRASES.iter().enumerate().filter(|(phrase, _)| self.0 & 1 << phrase != 0);
        let phrases: Vec<&str> = phrases.map(|(_, text)| *text).collect();
        f.write_str("Insufficient GPUs")?;
        if phrases.is_empty() { Ok(()) } else { write!(f, " ({})", phrases.join("; ")) }
    }
}

// === impl Reason ===

impl Reason {
    /// Position among [`Lacking::PHRASES`].
    fn phrase(&self) -> usize {
        match self {
            Self::Unhealthy => 0,
            Self::Model(_) => 1,
            Self::Kind => 2,
            Self::Uuid => 3,
            Self::Memory { .. } => 4,
            Self::TooSmall { .. } => 5,
            Self::Cores { .. } => 6,
            Self::Shared => 7,
            Self::Exclusive => 8,
            Self::Slots => 9,
            Self::OwnPod => 10,
            Self::Numa => 11,
            Self::Reused => 12,
            Self::NoInstance => 13,
            Self::Oversubscribed => 14,
            Self::NotOversubscribed => 15,
            Self::NoOversubscription => 16,
            Self::HostMemory { .. } => 17,
            Self::OtherCard => 18,
            Self::Tier(_) => 19,
            Self::ComputeMode => 20,
        }
    }

    /// How much there is of what is short, and the same in words.
    fn figure(&self) -> Option<(Amount, String)> {
        match self {
            Self::Memory { free, .. } => Some((Amount::Memory(*free), format!("largest free {free}"))),
            Self::TooSmall { capacity, .. } => Some((Amount::Memory(*capacity), format!("largest {capacity}"))),
            Self::HostMemory { wanted, free } => Some((Amount::Memory(*free), format!("{wanted} needed, {free} left"))),
            Self::Cores { free, .. } => Some((Amount::Cores(*free), format!("most free {free}"))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_counts_gpus_by_reason() {
        let memory = |free: u64| Some(Reason::Memory { wanted: Memory::mib(40 << 10), free: Memory::mib(free << 10) });
        let reasons = [
            memory(12),
            Some(Reason::Exclusive),
            memory(3),
            Some(Reason::Unhealthy),
            Some(Reason::Exclusive),
            memory(5),
        ];
        assert_eq!(
            summary(&reasons),
            "Insufficient GPUs (1 unhealthy; 3 short of memory, largest free 12Gi; 2 held exclusively by another pod)"
        );
        let too_small =
            |gib: u64| Some(Reason::TooSmall { wanted: Memory::mib(40 << 10), capacity: Memory::mib(gib << 10) });
        assert_eq!(
            summary(&[too_small(5), too_small(20), None]),
            "Insufficient GPUs (2 too small, largest 20Gi; 1 suitable)"
        );
        let cores = |free| Some(Reason::Cores { wanted: Cores::new(50), free: Cores::new(free) });
        assert_eq!(summary(&[cores(9), cores(20)]), "Insufficient GPUs (2 short of cores, most free 20)");
        assert_eq!(summary(&[]), "no GPUs");
    }
}
