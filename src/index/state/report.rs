//! `GpuNode`s, validated: an inconsistent one makes its node unusable, and only that one.

use std::collections::HashSet;
use std::sync::Arc;

use divvy_api::gpunode::{GpuNodeReport, MOST_CARDS, Oversubscription, Scales, ShareStatus};
use divvy_api::pod::{ContainerKind, peak};
use divvy_api::{Card, CardId, Cores, Memory, NodeCards, Tier};
use divvy_placement::{Hardware, Held, NodeState, Taken};

use crate::demand::SchedulingConfig;
use crate::state::SharedValues;

/// Status of a `GpuNode`.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) node: Arc<NodeCards>,
    /// Number of the hardware kind, by card.
    pub(crate) hardware: Arc<[u16]>,
    /// Percent by which a card is busier than reserved when it was measured, by card.
    busy: Box<[u8]>,
    host_elsewhere: Memory,
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
    /// The object doesn't match the CRD, by the first field that can't be read.
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
    pub(crate) fn new(
        read: GpuNodeReport,
        config: &SchedulingConfig,
        shared: &mut SharedValues,
    ) -> Result<Self, Unusable> {
        if !read.has_status {
            return Err(Unusable::NoStatus);
        }
        if let Some(unread) = read.unread.first() {
            return Err(Unusable::Unreadable(unread.clone()));
        }
        check(&read.node)?;
        let closed = closed(&read);
        let host_elsewhere = read.host_elsewhere();
        let GpuNodeReport { mut node, shares, tier, clique, ledger_revision, .. } = read;
        node.links = shared.links(&node.links);
        node.cards.iter_mut().for_each(|card| card.model = shared.model(&card.model));
        let pods = pods(&shares, &node.cards, shared)?;
        let busy = |(at, card)| if config.load_aware { busy(at, card, &pods) } else { 0 };
        Ok(Self {
            hardware: node.cards.iter().map(|card| shared.hardware_of(card, &node)).collect(),
            busy: node.cards.iter().enumerate().map(busy).collect(),
            host_elsewhere,
            pods,
            closed,
            tier: node.cards.iter().map(|card| card.tier).max().or(tier).unwrap_or_default(),
            clique: clique.map(Arc::from),
            ledger_revision: ledger_revision.unwrap_or_default(),
            node: Arc::new(node),
        })
    }

    pub(crate) fn pod(&self, uid: &str) -> Option<&Reported> {
        self.pods.iter().find(|pod| &*pod.uid == uid)
    }

    /// The cards with nothing held.
    pub(crate) fn empty(&self) -> NodeState {
        let held = self.busy.iter().map(|busy| Held { busy: *busy, ..Held::default() }).collect();
        NodeState { node: Arc::clone(&self.node), held, host_elsewhere: self.host_elsewhere }
    }
}

/// Refuses what no node has.
fn check(node: &NodeCards) -> Result<(), Unusable> {
    let NodeCards { cards, oversubscription, .. } = node;
    let is_believed = |scale| (1..=MOST_SCALE).contains(&scale);
    if let Some(Oversubscription { memory_scale, .. }) = *oversubscription
        && !(101..=MOST_SCALE).contains(&memory_scale)
    {
        return Err(Unusable::Oversubscription { memory_scale });
    }
    if cards.len() > MOST_CARDS {
        return Err(Unusable::Cards(cards.len()));
    }
    let mut seen = HashSet::new();
    for Card { id, memory, scales: Scales { memory: memory_scale, cores }, .. } in cards {
        if !seen.insert(id) {
            return Err(Unusable::Twice(id.clone()));
        }
        if !is_believed(*memory_scale) || !is_believed(*cores) {
            return Err(Unusable::Scales { memory: *memory_scale, cores: *cores });
        }
        if !(1..=MOST_MEMORY).contains(&memory.as_mib()) {
            return Err(Unusable::Memory { card: id.clone(), mib: memory.as_mib() });
        }
    }
    let kinds = cards.iter().map(|card| Hardware::new(card, node)).collect::<HashSet<_>>().len();
    if kinds > MOST_KINDS { Err(Unusable::Kinds(kinds)) } else { Ok(()) }
}

/// Percent by which a card is busier than reserved when it was measured. A pod that uses its own share is no reason to avoid
/// its card.
fn busy(at: usize, card: &Card, pods: &[Reported]) -> u8 {
    let on_card = pods.iter().flat_map(|pod| &pod.on).filter(|taken| taken.card == at);
    let reserved: Cores = on_card.map(|taken| taken.share.cores).sum();
    let beyond = card.utilization.unwrap_or(0).saturating_sub(reserved.units());
    u8::try_from(beyond).unwrap_or(u8::MAX).min(100)
}

fn closed(read: &GpuNodeReport) -> Option<Arc<str>> {
    if read.release_driver {
        return Some("spec.releaseDriver of the GpuNode is set".into());
    }
    let condition = |kind: &str| read.conditions.iter().find(|condition| condition.type_ == kind);
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
    let mut slots = 0;
    let mut is_pooled = false;
    for kind in kinds {
        slots += u32::from(!is_pooled);
        is_pooled = kind == ContainerKind::Init;
    }
    slots
}
