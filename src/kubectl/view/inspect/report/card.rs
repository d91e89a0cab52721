//! One card: what it is, who holds it, and what that adds up to.

use std::collections::BTreeMap;

use divvy_api::gpunode::{GpuNodeReport, ShareStatus};
use divvy_api::pod::peak;
use divvy_api::{CardId, ContainerKind, Cores, Health, Link, Links, Memory, Share, Tier};
use serde::Serialize;

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
    /// `Healthy`, `Unhealthy`, or `Missing` if the daemon doesn't list it. A cordoned card stays `Healthy`.
    pub health: &'static str,
    /// Why it isn't healthy, or takes no parts.
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
    pub shares: Vec<ShareReport>,
}

/// What one container holds of one card.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareReport {
    /// As the `GpuNode` has it.
    #[serde(flatten)]
    pub status: ShareStatus,
    /// The hardware keeps the container to it, whatever the node's tier, as it is all of a MIG instance.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_hardware: bool,
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

/// Health of a card that isn't in the report.
const MISSING: &str = "Missing";

// === impl CardReport ===

impl CardReport {
    /// The card at this position of a node's report.
    pub(super) fn new(reported: &GpuNodeReport, at: usize, shares: &[&ShareStatus], takes_pods: bool) -> Self {
        let card = &reported.node.cards[at];
        let of_holders = Self::missing(&card.id, shares);
        let (health, reason) = without_cordon(&card.health);
        let gives = takes_pods && card.is_healthy() && !of_holders.exclusive;
        let memory = card.memory.as_mib();
        let capacity = card.memory_capacity().as_mib();
        Self {
            model: Some(card.model.to_string()).filter(|model| !model.is_empty()),
            health,
            reason: reason.or(card.compute_mode.objection()).map(str::to_owned),
            cordoned: matches!(card.health, Health::Cordoned { .. }),
            numa: card.numa,
            mig: card.mig.as_ref().map(|mig| mig.profile.to_string()),
            tier: reported.tier.filter(|of_node| *of_node != card.tier).map(|_| card.tier.to_string()),
            slots: reported.slots_per_card.filter(|of_node| *of_node != card.slots).map(|_| card.slots),
            utilization: card.utilization,
            topology: topology(&reported.node.links, at),
            memory_mi: of_holders.memory_mi.within(memory, capacity, gives),
            cores: of_holders.cores.within(Cores::FULL.units().into(), card.cores_capacity().units().into(), gives),
            ..of_holders
        }
    }

    /// A card that pods hold, and of which nothing else is reported.
    pub(super) fn missing(id: &CardId, shares: &[&ShareStatus]) -> Self {
        let mut by_pod: BTreeMap<&str, Vec<(ContainerKind, Share)>> = BTreeMap::new();
        for share in shares {
            by_pod.entry(&share.pod_uid).or_default().push((share.kind, share.share));
        }
        let held: Vec<Share> = by_pod.into_values().map(peak).collect();
        Self {
            uuid: id.to_string(),
            model: None,
            health: MISSING,
            reason: Some("pods hold shares of it, but divvy-node doesn't list it".to_owned()),
            cordoned: false,
            exclusive: held.iter().any(|share| share.exclusive),
            numa: None,
            mig: None,
            tier: None,
            slots: None,
            utilization: None,
            topology: String::new(),
            pods: held.len(),
            memory_mi: Amount::held(held.iter().map(|share| share.on_card().as_mib())),
            host_memory_mi: held.iter().map(|share| share.host).sum(),
            cores: Amount::held(held.iter().map(|share| share.cores.units().into())),
            shares: shares.iter().map(|share| ShareReport::new(share)).collect(),
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

/// Health and reason apart from a cordon.
pub(super) fn without_cordon(health: &Health) -> (&'static str, Option<&str>) {
    match health {
        Health::Healthy | Health::Cordoned { also: None } => (HEALTHY, None),
        Health::Cordoned { also: Some(reason) } | Health::Unhealthy { reason } => {
            ("Unhealthy", Some(&**reason).filter(|reason| !reason.is_empty()))
        }
    }
}

/// Row of the matrix that `nvidia-smi topo -m` prints; nothing where all links are `SYS`.
fn topology(links: &Links, at: usize) -> String {
    let class = |other: usize| if other == at { "X".to_owned() } else { links.get(at, other).to_string() };
    let others = || (0..links.cards()).filter(|other| *other != at);
    if others().all(|other| links.get(at, other) == Link::System) {
        return String::new();
    }
    (0..links.cards()).map(class).collect::<Vec<_>>().join(" ")
}

// === impl ShareReport ===

impl ShareReport {
    fn new(status: &ShareStatus) -> Self {
        let by_hardware = status.share.tier_on(&status.card, Tier::default()) == Tier::Mig;
        Self { status: status.clone(), by_hardware }
    }
}

// === impl Amount ===

impl Amount {
    /// Host memory of a node, all of which can be allocated.
    pub(super) fn of_host(capacity: Memory, held: Memory) -> Self {
        Self::held([held.as_mib()].into_iter()).within(capacity.as_mib(), capacity.as_mib(), true)
    }

    fn held(held: impl Iterator<Item = u64>) -> Self {
        Self { held: held.fold(0, u64::saturating_add), ..Self::default() }
    }

    /// What is held of so much, of which a part is allocatable.
    fn within(self, total: u64, capacity: u64, gives: bool) -> Self {
        let free = if gives { capacity.saturating_sub(self.held) } else { 0 };
        Self { total, capacity, free, ..self }
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
