//! One card: what it is, who holds it, and what that adds up to.

use std::collections::BTreeMap;

use divvy_api::gpunode::{CORDONED, Scales};
use divvy_api::pod::peak;
use divvy_api::{ContainerKind, Cores, Memory, Share as Part};
use serde::Serialize;

use crate::view::inspect::read::{Card, MISSING, Share};

/// What a card that serves says of its health.
pub(super) const HEALTHY: &str = "Healthy";

/// One card.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardReport {
    /// UUID of the card.
    pub uuid: String,
    /// Product name as NVML gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `Healthy`, `Unhealthy`, `Missing` if the daemon doesn't list it, or a newer daemon's word. A cordoned card stays `Healthy`.
    pub health: String,
    /// Why it isn't healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Takes no new pods by `spec.unschedulableCards`.
    pub cordoned: bool,
    /// A pod holds it alone.
    pub exclusive: bool,
    /// NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    /// MIG profile, for an instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<String>,
    /// How shares of it are enforced, where that is a stronger tier than the node's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Most containers that can share it, where that isn't the node's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Percent of the last minute or two in which a kernel ran on it, where the daemon publishes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<u32>,
    /// Row of the matrix that `nvidia-smi topo -m` prints, in the order of the cards.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub topology: String,
    /// Pods that hold a share of it, of whatever namespace.
    pub pods: usize,
    /// In MiB.
    pub memory_mi: Amount,
    /// Host memory in MiB that pods hold in addition, where the node oversubscribes memory.
    #[serde(skip_serializing_if = "Memory::is_zero")]
    pub host_memory_mi: Memory,
    /// In percent of a card.
    pub cores: Amount,
    /// Shares that containers hold, as the `GpuNode` has them.
    pub shares: Vec<Share>,
}

/// How much there is of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Amount {
    /// Capacity of the card.
    pub total: u64,
    /// Allocatable amount: another one than the total where the node's configuration scales it.
    pub capacity: u64,
    /// Amount that pods hold: of each the larger of its init containers' peak and the sum of its others.
    pub held: u64,
    /// Amount that the next pod could get: nothing where card or node takes no pods, or not all of the report can be read.
    pub free: u64,
}

/// Sums over cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Cards that the daemons list.
    pub cards: usize,
    /// Healthy ones of these cards, cordoned or not.
    pub healthy_cards: usize,
    /// Pods that hold a share.
    pub pods: usize,
    /// In MiB.
    pub memory_mi: Amount,
    /// In percent of a card.
    pub cores: Amount,
}

// === impl CardReport ===

impl CardReport {
    pub(super) fn new(card: &Card, cordoned: bool, scales: Scales, shares: &[&Share], takes_pods: bool) -> Self {
        let scales = card.scales.unwrap_or(scales);
        let mut by_pod: BTreeMap<&str, Vec<(ContainerKind, Part)>> = BTreeMap::new();
        for share in shares {
            by_pod.entry(&share.pod_uid).or_default().push((share.kind, share.part));
        }
        let pods = by_pod.len();
        let held: Vec<Part> = by_pod.into_values().map(peak).collect();
        let (health, reason, was_cordoned) = condition_of(card);
        let cordoned = cordoned || was_cordoned;
        let exclusive = held.iter().any(|share| share.exclusive);
        let gives = takes_pods && health == HEALTHY && !cordoned && !exclusive;
        let whole = if card.is_missing() { Cores::ZERO } else { Cores::FULL };
        Self {
            uuid: card.uuid.clone(),
            model: card.model.clone(),
            health: health.to_owned(),
            reason: reason.map(str::to_owned),
            cordoned,
            exclusive,
            numa: card.numa,
            mig: card.mig.clone(),
            tier: card.tier.clone(),
            slots: card.slots,
            utilization: card.utilization,
            topology: card.topology.clone(),
            pods,
            memory_mi: Amount::new(
                card.memory.as_mib(),
                scales.memory,
                held.iter().map(|share| share.on_card().as_mib()),
                gives,
            ),
            host_memory_mi: held.iter().map(|share| share.host).sum(),
            cores: Amount::new(
                whole.units().into(),
                scales.cores,
                held.iter().map(|share| share.cores.units().into()),
                gives,
            ),
            shares: shares.iter().map(|share| (*share).clone()).collect(),
        }
    }

    pub(super) fn totals(&self) -> Totals {
        let is_listed = self.health != MISSING;
        Totals {
            cards: is_listed.into(),
            healthy_cards: (self.health == HEALTHY).into(),
            pods: 0,
            memory_mi: self.memory_mi,
            cores: self.cores,
        }
    }
}

/// Health and reason apart from a cordon, which the daemon publishes as `Unhealthy`; and whether there is one.
fn condition_of(card: &Card) -> (&str, Option<&str>, bool) {
    let reason = card.reason.as_deref();
    match reason.and_then(|reason| reason.strip_prefix(CORDONED)) {
        Some("") => (HEALTHY, None, true),
        Some(rest) if rest.starts_with("; ") => (&card.health, Some(&rest[2..]), true),
        _ => (&card.health, reason, false),
    }
}

// === impl Amount ===

impl Amount {
    /// Host memory of a node, all of which can be allocated.
    pub(super) fn of_host(capacity: Memory, held: Memory) -> Self {
        Self::new(capacity.as_mib(), 100, [held.as_mib()].into_iter(), true)
    }

    fn new(total: u64, scale: u32, held: impl Iterator<Item = u64>, gives: bool) -> Self {
        // Rounded down, as the daemon does.
        let capacity = u64::try_from(u128::from(total) * u128::from(scale) / 100).unwrap_or(u64::MAX);
        let held = held.fold(0, u64::saturating_add);
        let free = if gives { capacity.saturating_sub(held) } else { 0 };
        Self { total, capacity, held, free }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            capacity: self.capacity.saturating_add(other.capacity),
            held: self.held.saturating_add(other.held),
            free: self.free.saturating_add(other.free),
        }
    }
}

// === impl Totals ===

impl Totals {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            cards: self.cards + other.cards,
            healthy_cards: self.healthy_cards + other.healthy_cards,
            pods: self.pods + other.pods,
            memory_mi: self.memory_mi.plus(other.memory_mi),
            cores: self.cores.plus(other.cores),
        }
    }
}
