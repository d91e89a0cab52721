//! The cards of this node and how they are, as the daemon's watcher last saw them.

use std::fmt;
use std::sync::Arc;

use divvy_api::{CardId, Memory, MigProfile};
use divvy_placement::Links;

/// The cards of this node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The driver, while it answers.
    pub driver: Option<Driver>,
    /// Every card that was seen since the daemon started, in the order of their PCI addresses.
    pub cards: Vec<CardInfo>,
    /// Links between `cards`, by position.
    pub links: Links,
    /// Why cards can't be listed, or not all of them.
    pub problem: Option<String>,
}

/// What the driver calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Such as `580.95.05`.
    pub version: String,
    /// The newest CUDA that it runs, such as `13.0`; `None` if it doesn't say.
    pub cuda: Option<String>,
}

/// A card. What NVML doesn't say any more keeps its last value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardInfo {
    /// Its UUID.
    pub id: CardId,
    /// Product name; empty while unknown.
    pub model: String,
    /// All of it; zero while unknown, and then the card is unhealthy.
    pub memory: Memory,
    /// In NVML's form, `00000000:17:00.0`; empty while unknown.
    pub pci_bus_id: String,
    /// The number in `/dev/nvidia<minor>`.
    pub minor: Option<u32>,
    /// NUMA node.
    pub numa: Option<u32>,
    /// Which MIG instance it is; then `minor`, `numa` and `pci_bus_id` are its GPU's. `None`: a whole GPU.
    pub mig: Option<MigInstance>,
    /// Whether it may take new shares.
    pub health: CardHealth,
    /// In use at the last probe, by anybody.
    pub memory_used: Option<Memory>,
    /// Percent of the last minute or two in which a kernel ran; newer samples count more. No MIG instance has it.
    pub utilization: Option<u32>,
    /// Which processes compute on it, at the last probe; `None`: NVML doesn't say.
    pub processes: Option<Vec<CardProcess>>,
}

/// A process that computes on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CardProcess {
    /// As numbered in our PID namespace; the driver leaves out those that have no number there.
    pub pid: u32,
    /// Memory of the card that it uses; `None`: NVML doesn't say.
    pub bytes: Option<u64>,
}

/// Which instance of which GPU a card is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    /// What it is of its GPU.
    pub profile: MigProfile,
    /// Its GPU.
    pub parent: CardId,
    /// ID of its GPU instance on the GPU.
    pub gi: u32,
    /// ID of its compute instance in the GPU instance.
    pub ci: u32,
    /// Whether it is asked for by its profile, and not as one of the plain count.
    pub by_profile: bool,
}

/// Whether a card may take new shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardHealth {
    /// It may.
    Healthy,
    /// It may not; those who hold shares keep them.
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
    /// The MIG profile by which it is asked for; `None`: it is one of the plain count.
    pub fn asked_by(&self) -> Option<&MigProfile> {
        self.mig.as_ref().filter(|mig| mig.by_profile).map(|mig| &mig.profile)
    }
}

// === impl Inventory ===

impl Inventory {
    /// With GPUs unhealthy, as on a node where the hardware must keep every pod within its shares.
    #[must_use]
    pub fn of_instances(self: Arc<Self>) -> Arc<Self> {
        let is_gpu = |card: &CardInfo| card.mig.is_none() && card.health.is_healthy();
        if !self.cards.iter().any(is_gpu) {
            return self;
        }
        let mut inventory = Self::clone(&self);
        for card in inventory.cards.iter_mut().filter(|card| is_gpu(card)) {
            let reason = "no MIG instance, which tier mig demands: cut the GPU, or set tier to auto".to_owned();
            card.health = CardHealth::Unhealthy { reason };
        }
        Arc::new(inventory)
    }
}
