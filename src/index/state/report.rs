//! `GpuNode`s, validated: an inconsistent one makes its node unusable, and only that one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use divvy_api::gpunode::{
    CORDONED, CardStatus, GpuNode, GpuNodeStatus, Health, MOST_CARDS, Oversubscription, Scales, ShareStatus,
};
use divvy_api::pod::{ContainerKind, peak};
use divvy_api::{CardId, Cores, Memory, Tier};
use divvy_placement::{Card, Hardware, Held, Link, Links, Taken};

use crate::demand::SchedulingConfig;
use crate::snapshot::UnhealthyReasons;
use crate::state::SharedValues;

/// Status of a `GpuNode`.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Cards with nothing held.
    pub(crate) cards: Vec<Card>,
    /// Slots, by card.
    pub(crate) slots: Arc<[u32]>,
    /// Number of the hardware kind, by card.
    pub(crate) hardware: Arc<[u16]>,
    pub(crate) unhealthy: UnhealthyReasons,
    pub(crate) links: Arc<Links>,
    pub(crate) pods: Vec<Reported>,
    /// Why the node takes no pods now.
    pub(crate) closed: Option<Arc<str>>,
    /// The strongest of its cards.
    pub(crate) tier: Tier,
    /// NVLink domain and clique of its cards.
    pub(crate) clique: Option<Arc<str>>,
    pub(crate) ledger_revision: u64,
}

/// A pod in a node's ledger.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub(crate) uid: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) on: Box<[Taken]>,
    /// Containers that hold something.
    pub(crate) containers: usize,
}

/// Why a `GpuNode` can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The daemon hasn't reported yet.
    #[error("GpuNode has no status yet")]
    NoStatus,
    /// The object doesn't match the CRD, by the decoder's error.
    #[error("GpuNode can't be decoded: {0}")]
    Unreadable(String),
    /// More GPUs than any node has.
    #[error("GpuNode lists {0} GPUs: expected at most {MOST_CARDS}")]
    Cards(usize),
    /// More kinds of GPUs than any node has.
    #[error(
        "GpuNode lists {0} kinds of GPUs, by model, memory and MIG profile: expected at most {MOST_KINDS}: see what writes \
         it, which should be divvy-node of that node alone"
    )]
    Kinds(usize),
    /// One UUID for two GPUs.
    #[error("GpuNode lists {0} twice")]
    Twice(CardId),
    /// No memory, or more than any GPU has, of a GPU or a share.
    #[error("GpuNode gives {card} {mib} MiB of memory")]
    Memory {
        /// UUID of the GPU.
        card: CardId,
        /// Reported memory in MiB.
        mib: u64,
    },
    /// Not a MIG profile.
    #[error("GpuNode gives {card} the MIG profile \"{profile}\"")]
    Profile {
        /// UUID of the GPU.
        card: CardId,
        /// Reported profile.
        profile: String,
    },
    /// Scale that is 0 or too large.
    #[error("GpuNode scales memory to {memory} % and compute to {cores} %: expected 1 to {MOST_SCALE}")]
    Scales {
        /// Percent of memory.
        memory: u32,
        /// Percent of compute.
        cores: u32,
    },
    /// Scale by which nothing is oversubscribed, or that is too large.
    #[error("GpuNode oversubscribes memory to {memory_scale} %: expected 101 to {MOST_SCALE}")]
    Oversubscription {
        /// Percent of the memory that is booked of the GPUs.
        memory_scale: u32,
    },
    /// Share without a pod.
    #[error("GpuNode has a share without a pod's UID")]
    NoPod,
}

/// Most kinds of GPUs of a node: those of a few models, and MIG instances of a dozen profiles of each.
const MOST_KINDS: usize = 64;
/// In MiB: 1 PiB.
const MOST_MEMORY: u64 = 1 << 30;
/// In percent.
const MOST_SCALE: u32 = 10_000;

// === impl Report ===

impl Report {
    pub(crate) fn read(node: &GpuNode, config: &SchedulingConfig, shared: &mut SharedValues) -> Result<Self, Unusable> {
        let status = node.status.as_ref().ok_or(Unusable::NoStatus)?;
        let GpuNodeStatus { scales, oversubscription, .. } = status;
        let believed = |scale| (1..=MOST_SCALE).contains(&scale);
        let all_scales = [scales].into_iter().chain(status.cards.iter().filter_map(|card| card.scales.as_ref()));
        if let Some(&Scales { memory, cores }) =
            all_scales.into_iter().find(|scales| !believed(scales.memory) || !believed(scales.cores))
        {
            return Err(Unusable::Scales { memory, cores });
        }
        if let Some(Oversubscription { memory_scale, .. }) = *oversubscription
            && !(101..=MOST_SCALE).contains(&memory_scale)
        {
            return Err(Unusable::Oversubscription { memory_scale });
        }
        if status.cards.len() > MOST_CARDS {
            return Err(Unusable::Cards(status.cards.len()));
        }
        let mut seen = HashSet::new();
        if let Some(card) = status.cards.iter().find(|card| !seen.insert(&card.uuid)) {
            return Err(Unusable::Twice(card.uuid.clone()));
        }
        let cordoned = &node.spec.unschedulable_cards;
        let unhealthy_reason =
            |card: &CardStatus| unhealthy_reason(card, cordoned.iter().any(|uuid| uuid == card.uuid.as_str()));
        let unhealthy: BTreeMap<usize, Arc<str>> = status
            .cards
            .iter()
            .enumerate()
            .filter_map(|(at, card)| Some((at, unhealthy_reason(card)?.into())))
            .collect();
        let card = |(at, card): (usize, &CardStatus)| {
            let of_node = OfNode {
                scales: *scales,
                slots: status.slots_per_card.unwrap_or(config.slots_per_card),
                tier: status.tier,
            };
            let card = read_card(card, !unhealthy.contains_key(&at), of_node, shared)?;
            Ok(Card { undivided: status.tier == Tier::Mig, oversubscription: of_cards(status), ..card })
        };
        let mut cards = status.cards.iter().enumerate().map(card).collect::<Result<Vec<_>, _>>()?;
        let kinds = cards.iter().map(Hardware::of).collect::<HashSet<_>>().len();
        if kinds > MOST_KINDS {
            return Err(Unusable::Kinds(kinds));
        }
        let pods = pods(&status.shares, &cards, shared)?;
        if config.load_aware {
            let seen = cards.iter_mut().zip(&status.cards).enumerate();
            seen.for_each(|(at, (card, seen))| card.busy = busy(at, seen, &pods));
        }
        let hardware = cards.iter().map(|card| shared.hardware_of(card)).collect();
        let rows: Vec<Vec<Link>> = status.cards.iter().map(|card| links(&card.topology)).collect();
        let links = shared.links(cards.len(), |a, b| rows[a].get(b).copied().unwrap_or_default());
        let tier = cards.iter().map(|card| card.tier).max().unwrap_or(status.tier);
        let slots = cards.iter().map(|card| card.free_slots).collect();
        let clique = status.clique.as_deref().map(Arc::from);
        let (closed, ledger_revision) = (closed(node, status), status.ledger_revision);
        Ok(Self {
            cards,
            slots,
            hardware,
            unhealthy: unhealthy.into(),
            links,
            pods,
            closed,
            tier,
            clique,
            ledger_revision,
        })
    }

    pub(crate) fn pod(&self, uid: &str) -> Option<&Reported> {
        self.pods.iter().find(|pod| &*pod.uid == uid)
    }
}

/// What holds for cards that have nothing of their own.
#[derive(Clone, Copy)]
struct OfNode {
    scales: Scales,
    slots: u32,
    tier: Tier,
}

fn read_card(card: &CardStatus, healthy: bool, of_node: OfNode, shared: &mut SharedValues) -> Result<Card, Unusable> {
    let CardStatus { uuid, model, memory, mig, plain, numa, .. } = card;
    let scales = card.scales.unwrap_or(of_node.scales);
    if !(1..=MOST_MEMORY).contains(&memory.as_mib()) {
        return Err(Unusable::Memory { card: uuid.clone(), mib: memory.as_mib() });
    }
    let refused = |profile: &String| Unusable::Profile { card: uuid.clone(), profile: profile.clone() };
    let profile = mig.as_ref().map(|profile| profile.parse().map_err(|_bad| refused(profile))).transpose()?;
    let profile = profile.filter(|_| !plain);
    Ok(Card {
        id: uuid.clone(),
        model: shared.model(model),
        profile,
        memory: *memory,
        memory_capacity: memory.percent(scales.memory),
        cores_capacity: Cores::new(scales.cores),
        healthy,
        numa: *numa,
        free_slots: card.slots.unwrap_or(of_node.slots),
        held: Held::default(),
        undivided: false,
        tier: card.tier.unwrap_or(of_node.tier),
        oversubscription: None,
        busy: 0,
    })
}

/// How the node oversubscribes the memory of its cards: shares of others hold host memory too.
fn of_cards(status: &GpuNodeStatus) -> Option<Oversubscription> {
    let oversubscription = status.oversubscription?;
    let is_elsewhere = |share: &&ShareStatus| status.cards.iter().all(|card| card.uuid != share.card);
    let elsewhere: Memory = status.shares.iter().filter(is_elsewhere).map(|share| share.share.host).sum();
    let host_memory = oversubscription.host_memory.saturating_sub(elsewhere);
    Some(Oversubscription { host_memory, ..oversubscription })
}

/// Percent by which a card is busier than reserved when it was measured. A pod that uses its own share is no reason to avoid
/// its card.
fn busy(at: usize, card: &CardStatus, pods: &[Reported]) -> u8 {
    let on_card = pods.iter().flat_map(|pod| &pod.on).filter(|taken| taken.card == at);
    let reserved: Cores = on_card.map(|taken| taken.share.cores).sum();
    let beyond = card.utilization.unwrap_or(0).saturating_sub(reserved.units());
    u8::try_from(beyond).unwrap_or(u8::MAX).min(100)
}

/// Why a card takes no shares; `None` if it does. A daemon that has seen the cordon names it first itself.
fn unhealthy_reason(card: &CardStatus, is_cordoned: bool) -> Option<String> {
    let named = card.reason.as_deref().filter(|_| card.health == Health::Unhealthy);
    match named {
        Some(reason) if reason.starts_with(CORDONED) => Some(reason.to_owned()),
        Some(reason) if is_cordoned => Some(format!("{CORDONED}; {reason}")),
        Some(reason) => Some(format!("unhealthy: {reason}")),
        None if is_cordoned => Some(CORDONED.to_owned()),
        None => (card.health == Health::Unhealthy).then(|| "unhealthy".to_owned()),
    }
}

/// Links of one card to all, by its row of the matrix; the worst where a class is unknown.
fn links(topology: &str) -> Vec<Link> {
    topology.split_whitespace().map(|class| class.parse().unwrap_or_default()).collect()
}

fn closed(node: &GpuNode, status: &GpuNodeStatus) -> Option<Arc<str>> {
    if node.spec.release_driver {
        return Some("spec.releaseDriver of the GpuNode is set".into());
    }
    let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
    if let Some(draining) = condition("Draining").filter(|draining| draining.status == "True") {
        return Some(draining.message.as_str().into());
    }
    match condition("Ready") {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(ready.message.as_str().into()),
        None => Some("GpuNode has no Ready condition".into()),
    }
}

/// Pods of a ledger. Shares of cards that the node no longer has are left out.
fn pods(shares: &[ShareStatus], cards: &[Card], values: &mut SharedValues) -> Result<Vec<Reported>, Unusable> {
    if let Some(share) = shares.iter().find(|share| share.share.memory.as_mib() > MOST_MEMORY) {
        return Err(Unusable::Memory { card: share.card.clone(), mib: share.share.memory.as_mib() });
    }
    let mut pods = Vec::new();
    // The shares of a pod stand together; those of an old daemon that mixed them up are two holders.
    for of_pod in shares.chunk_by(|one, next| one.pod_uid == next.pod_uid) {
        let uid = &of_pod[0].pod_uid;
        if uid.is_empty() {
            return Err(Unusable::NoPod);
        }
        let held = (0..cards.len()).filter_map(|card| taken(card, &cards[card].id, of_pod));
        let containers = of_pod.chunk_by(|one, next| one.container == next.container).count();
        let namespace = values.namespace(&of_pod[0].namespace);
        pods.push(Reported { uid: uid.as_str().into(), namespace, on: held.collect(), containers });
    }
    Ok(pods)
}

fn taken(card: usize, id: &CardId, shares: &[ShareStatus]) -> Option<Taken> {
    let on_card = || shares.iter().filter(|share| share.card == *id);
    on_card().next()?;
    let steps = on_card().map(|share| (share.kind, share.share));
    Some(Taken { card, share: peak(steps), slots: slots(on_card().map(|share| share.kind)) })
}

/// Slots of one card that these containers have, in admission order: a container that follows an init container on the same
/// card reuses its slot.
fn slots(kinds: impl Iterator<Item = ContainerKind>) -> u32 {
    let (mut slots, mut is_pooled) = (0, false);
    for kind in kinds {
        slots += u32::from(!is_pooled);
        is_pooled = kind == ContainerKind::Init;
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topology_row_with_unknown_classes_has_the_worst_links() {
        let links = |row| links(row).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(links("X NV18 PIX NODE SYS"), "SYS NV18 PIX NODE SYS");
        assert_eq!(links("NV18\tnv18  NV C2C NV99999999999 "), "NV18 SYS SYS SYS SYS");
        assert_eq!(links(""), "");
    }
}
