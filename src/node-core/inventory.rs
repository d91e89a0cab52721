//! Inventory: the cards of this node and their health, as last read from NVML.

use std::sync::Arc;

use divvy_api::{Card, CardId, Links, Memory, NodeCards};

/// The cards of this node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The driver, while it answers.
    pub driver: Option<Driver>,
    /// Every card found since the daemon started, in the order of their PCI addresses, with what is configured for it. What
    /// NVML doesn't report any more keeps its last value.
    pub node: Arc<NodeCards>,
    /// What NVML says besides of each of these cards.
    pub devices: Vec<DeviceInfo>,
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

/// What NVML says of a card and only its own node needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// PCI bus ID in NVML's form, `00000000:17:00.0`; empty while unknown. Of a MIG instance, its GPU's; so are minor and index.
    pub pci_bus_id: String,
    /// The number in `/dev/nvidia<minor>`.
    pub minor: Option<u32>,
    /// NVML's index, by which `nvidia-smi` lists it; another one after a reboot, maybe.
    pub index: Option<u32>,
    /// NVLink domain and clique, as the label `nvidia.com/gpu.clique` has them: it is linked with all GPUs of the same one,
    /// also those of other nodes.
    pub clique: Option<String>,
    /// Where a MIG instance is; `None`: a whole GPU.
    pub place: Option<MigPlace>,
    /// Memory in use at the last probe, by all processes.
    pub memory_used: Option<Memory>,
    /// Compute processes at the last probe; `None`: NVML doesn't report them.
    pub processes: Option<Vec<CardProcess>>,
}

/// Which instance of which GPU a card is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigPlace {
    /// GPU of the instance.
    pub gpu: CardId,
    /// ID of its GPU instance on the GPU.
    pub gi: u32,
    /// ID of its compute instance in the GPU instance.
    pub ci: u32,
}

/// A process that computes on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CardProcess {
    /// PID in the daemon's PID namespace; the driver leaves out processes that have none there.
    pub pid: u32,
    /// Memory of the card that it uses; `None`: NVML doesn't report it.
    pub bytes: Option<u64>,
}

// === impl DeviceInfo ===

impl DeviceInfo {
    /// Whether a UUID names this card, or the GPU whose instance it is.
    pub fn is_or_is_of(&self, card: &Card, uuid: &str) -> bool {
        card.id.as_str() == uuid || self.place.as_ref().is_some_and(|place| place.gpu.as_str() == uuid)
    }
}

// === impl Inventory ===

impl Inventory {
    /// The cards found, each with what NVML says of it.
    pub fn new(cards: impl IntoIterator<Item = (Card, DeviceInfo)>, links: Links) -> Self {
        let (cards, devices) = cards.into_iter().unzip();
        let node = NodeCards { cards, links: Arc::new(links), ..NodeCards::default() };
        Self { node: Arc::new(node), devices, ..Self::default() }
    }

    /// The cards.
    pub fn cards(&self) -> &[Card] {
        &self.node.cards
    }

    /// Each card with what NVML says of it.
    pub fn each(&self) -> impl Iterator<Item = (&Card, &DeviceInfo)> {
        self.node.cards.iter().zip(&self.devices)
    }

    /// NVLink domain and clique of all cards that are in any; `None` too where they are in several, as GPU feature discovery
    /// has it.
    pub fn clique(&self) -> Option<&str> {
        let mut cliques = self.devices.iter().filter_map(|card| card.clique.as_deref());
        let first = cliques.next()?;
        cliques.all(|clique| clique == first).then_some(first)
    }
}
