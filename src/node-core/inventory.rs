//! Inventory: the cards of this node and their health, as last read from NVML.

use std::fmt;
use std::sync::Arc;

use divvy_api::gpunode::Scales;
use divvy_api::{CardId, Memory, MigProfile, Tier};
use divvy_placement::Links;

/// The cards of this node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The driver, while it answers.
    pub driver: Option<Driver>,
    /// Every card found since the daemon started, in the order of their PCI addresses.
    pub cards: Vec<CardInfo>,
    /// Links between `cards`, by position.
    pub links: Links,
    /// Why cards can't be listed, or not all of them.
    pub problem: Option<String>,
}

/// Versions of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Driver version such as `580.95.05`.
    pub version: String,
    /// Newest CUDA version that it supports, such as `13.0`; `None` if it doesn't report one.
    pub cuda: Option<String>,
}

/// A card. Fields that NVML doesn't report any more keep their last value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardInfo {
    /// UUID of the card.
    pub id: CardId,
    /// Product name; empty while unknown.
    pub model: String,
    /// Total memory; zero while unknown, and then the card is unhealthy.
    pub memory: Memory,
    /// PCI bus ID in NVML's form, `00000000:17:00.0`; empty while unknown.
    pub pci_bus_id: String,
    /// The number in `/dev/nvidia<minor>`.
    pub minor: Option<u32>,
    /// NVML's index, by which `nvidia-smi` lists it; another one after a reboot, maybe.
    pub index: Option<u32>,
    /// NVLink domain and clique, as the label `nvidia.com/gpu.clique` has them: it is linked with all GPUs of the same one,
    /// also those of other nodes.
    pub clique: Option<String>,
    /// NUMA node.
    pub numa: Option<u32>,
    /// Which MIG instance it is; then `minor`, `index`, `numa` and `pci_bus_id` are its GPU's. `None`: a whole GPU.
    pub mig: Option<MigInstance>,
    /// Whether it may take new shares.
    pub health: CardHealth,
    /// Memory in use at the last probe, by all processes.
    pub memory_used: Option<Memory>,
    /// Utilisation in percent over the last minute or two; newer samples count more. MIG instances have none.
    pub utilization: Option<u32>,
    /// Compute processes at the last probe; `None`: NVML doesn't report them.
    pub processes: Option<Vec<CardProcess>>,
    /// Settings of its own.
    pub settings: CardSettings,
}

/// How a card is shared, where that isn't how the node's cards are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardSettings {
    /// Slots that are registered for it.
    pub slots: Option<u32>,
    /// Tier by which its shares are enforced: at most what the node serves.
    pub tier: Option<Tier>,
    /// Allocatable memory in percent: 100 at most.
    pub memory_scale: Option<u32>,
    /// Allocatable compute in percent.
    pub cores_scale: Option<u32>,
}

/// A process that computes on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CardProcess {
    /// PID in the daemon's PID namespace; the driver leaves out processes that have none there.
    pub pid: u32,
    /// Memory of the card that it uses; `None`: NVML doesn't report it.
    pub bytes: Option<u64>,
}

/// Which instance of which GPU a card is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    /// MIG profile.
    pub profile: MigProfile,
    /// GPU of the instance.
    pub parent: CardId,
    /// ID of its GPU instance on the GPU.
    pub gi: u32,
    /// ID of its compute instance in the GPU instance.
    pub ci: u32,
    /// Whether it is requested by its profile (`nvidia.com/mig-<profile>`) and not as `nvidia.com/gpu`.
    pub by_profile: bool,
}

/// Whether a card may take new shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardHealth {
    /// New shares are allocated from it.
    Healthy,
    /// No new shares are allocated from it; held ones stay.
    Unhealthy {
        /// What happened, for people.
        reason: String,
    },
}

// === impl CardHealth ===

impl CardHealth {
    /// Whether the card may take new shares.
    pub fn is_healthy(&self) -> bool {
        *self == Self::Healthy
    }
}

impl fmt::Display for CardHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("healthy"),
            Self::Unhealthy { reason } => write!(f, "unhealthy: {reason}"),
        }
    }
}

// === impl CardInfo ===

impl CardInfo {
    /// A healthy card with this memory, of which nothing else is known.
    pub fn healthy(id: CardId, memory: Memory) -> Self {
        Self {
            id,
            model: String::new(),
            memory,
            pci_bus_id: String::new(),
            minor: None,
            index: None,
            clique: None,
            numa: None,
            mig: None,
            health: CardHealth::Healthy,
            memory_used: None,
            utilization: None,
            processes: None,
            settings: CardSettings::default(),
        }
    }

    /// How many slots it has on a node whose cards have `of_node`.
    pub fn slots(&self, of_node: u32) -> u32 {
        self.settings.slots.unwrap_or(of_node)
    }

    /// Tier of its shares on a node that serves `of_node`.
    pub fn tier(&self, of_node: Tier) -> Tier {
        self.settings.tier.map_or(of_node, |tier| tier.min(of_node))
    }

    /// What can be allocated of it on a node with these scales.
    pub fn scales(&self, of_node: Scales) -> Scales {
        let CardSettings { memory_scale, cores_scale, .. } = self.settings;
        Scales { memory: memory_scale.unwrap_or(of_node.memory), cores: cores_scale.unwrap_or(of_node.cores) }
    }

    /// MIG profile of the resource by which it is requested; `None`: `nvidia.com/gpu`.
    pub fn asked_by(&self) -> Option<&MigProfile> {
        self.mig.as_ref().filter(|mig| mig.by_profile).map(|mig| &mig.profile)
    }
}

// === impl Inventory ===

impl Inventory {
    /// NVLink domain and clique of all cards that are in any; `None` too where they are in several, as GPU feature discovery
    /// has it.
    pub fn clique(&self) -> Option<&str> {
        let mut cliques = self.cards.iter().filter_map(|card| card.clique.as_deref());
        let first = cliques.next()?;
        cliques.all(|clique| clique == first).then_some(first)
    }

    /// This inventory with GPUs unhealthy, as on a node where the hardware must enforce every share.
    #[must_use]
    pub fn of_instances(self: Arc<Self>) -> Arc<Self> {
        let is_gpu = |card: &CardInfo| card.mig.is_none() && card.health.is_healthy();
        if !self.cards.iter().any(is_gpu) {
            return self;
        }
        let mut inventory = Self::clone(&self);
        for card in inventory.cards.iter_mut().filter(|card| is_gpu(card)) {
            let reason =
                "not a MIG instance, which tier mig requires: partition the GPU, or set tier to auto".to_owned();
            card.health = CardHealth::Unhealthy { reason };
        }
        Arc::new(inventory)
    }
}
