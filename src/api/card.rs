//! The GPUs of a node.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card_id::{CardId, MigProfile};
use crate::links::Links;
use crate::quantity::{Cores, Memory};
use divvy_region::Tier;

/// The GPUs of one node, and what is the node's and not a GPU's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCards {
    /// GPUs and MIG instances in the order of the node's report; positions elsewhere are positions in this list.
    pub cards: Vec<Card>,
    /// Links between them.
    pub links: Arc<Links>,
    /// Whether they are allocated whole or not at all, as the hardware must enforce every share.
    pub undivided: bool,
    /// How their memory is oversubscribed, where the node is configured for it.
    pub oversubscription: Option<Oversubscription>,
}

/// A GPU or a MIG instance. Values are the effective ones: what is configured for it, else for its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The card's UUID.
    pub id: CardId,
    /// Product name as NVML gives it, empty while unknown; shared between the cards of many nodes.
    pub model: Arc<str>,
    /// Physical memory, which percentages are of; zero while unknown, and then the card is unhealthy.
    pub memory: Memory,
    /// NUMA node, where known.
    pub numa: Option<u32>,
    /// Which MIG instance it is; `None`: a whole GPU.
    pub mig: Option<MigInstance>,
    /// Slots that are registered for it: the most containers that can share it.
    pub slots: u32,
    /// Tier by which shares of it are enforced, at least.
    pub tier: Tier,
    /// Part of it that can be allocated.
    pub scales: Scales,
    /// Whether it may take new shares.
    pub health: Health,
    /// Which contexts the driver allows on it.
    pub compute_mode: ComputeMode,
    /// Percent of the last minute or two in which a kernel ran on it, where that is known.
    pub utilization: Option<u32>,
}

/// Which contexts the driver allows on a GPU (`nvmlComputeMode_t`), as `nvidia-smi -q` writes it. Effective: with tier `mps` the
/// one process of `EXCLUSIVE_PROCESS` is its service, so that the mode restricts nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ComputeMode {
    /// Those of any number of processes.
    #[default]
    Default,
    /// Those of one process at a time, so that no two containers can share it.
    #[serde(rename = "Exclusive_Process")]
    ExclusiveProcess,
    /// None.
    Prohibited,
}

/// What a MIG instance is of its GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    /// MIG profile.
    pub profile: MigProfile,
    /// Whether it is requested by its profile (`nvidia.com/mig-<profile>`) and not as `nvidia.com/gpu`.
    pub by_profile: bool,
}

/// Part of a GPU that can be allocated, in percent of what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Scales {
    /// Percent of its memory.
    pub memory: u32,
    /// Percent of its compute.
    pub cores: u32,
}

/// Oversubscription of a node's GPU memory, for pods that ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Oversubscription {
    /// Memory that these pods may allocate, in percent of the GPU memory that is booked for them; above 100.
    pub memory_scale: u32,
    /// Host memory that is booked for the rest, at most, over all shares of the node. In MiB.
    #[serde(rename = "hostMemoryMi")]
    pub host_memory: Memory,
}

/// Whether a card may take new shares. Held ones stay, whatever it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// New shares are allocated from it.
    #[default]
    Healthy,
    /// An administrator keeps new pods off: `spec.unschedulableCards` of the `GpuNode` names it, or its GPU.
    Cordoned {
        /// What ails the card besides, for people.
        also: Option<Arc<str>>,
    },
    /// No new shares can be allocated from it.
    Unhealthy {
        /// What happened, for people; empty where that isn't known.
        reason: Arc<str>,
    },
}

// === impl NodeCards ===

impl NodeCards {
    /// Position of a card.
    pub fn position(&self, id: &CardId) -> Option<usize> {
        self.cards.iter().position(|card| card.id == *id)
    }

    /// The card with this UUID.
    pub fn card(&self, id: &CardId) -> Option<&Card> {
        self.cards.iter().find(|card| card.id == *id)
    }
}

// === impl Card ===

impl Card {
    /// A healthy GPU with this memory, of which nothing else is known.
    pub fn healthy(id: CardId, memory: Memory) -> Self {
        Self {
            id,
            model: Arc::default(),
            memory,
            numa: None,
            mig: None,
            slots: 0,
            tier: Tier::default(),
            scales: Scales::WHOLE,
            health: Health::Healthy,
            compute_mode: ComputeMode::Default,
            utilization: None,
        }
    }

    /// Whether it may take new shares.
    pub fn is_healthy(&self) -> bool {
        self.health == Health::Healthy
    }

    /// Whether parts of it are allocated.
    #[inline]
    pub fn takes_parts(&self) -> bool {
        self.compute_mode == ComputeMode::Default
    }

    /// Allocatable memory: physical memory × its scale.
    #[inline]
    pub fn memory_capacity(&self) -> Memory {
        self.memory.percent(self.scales.memory)
    }

    /// Allocatable compute: 100 × its scale.
    #[inline]
    pub fn cores_capacity(&self) -> Cores {
        Cores::new(self.scales.cores)
    }

    /// MIG profile of the resource by which it is requested; `None`: `nvidia.com/gpu`.
    pub fn requested_profile(&self) -> Option<&MigProfile> {
        self.mig.as_ref().filter(|mig| mig.by_profile).map(|mig| &mig.profile)
    }
}

// === impl ComputeMode ===

impl ComputeMode {
    /// What the mode keeps from a GPU, and what to do, for people.
    pub fn objection(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::ExclusiveProcess => {
                Some("takes no parts, as it is in compute mode Exclusive_Process: set it with nvidia-smi -c DEFAULT")
            }
            Self::Prohibited => Some("in compute mode Prohibited: set it with nvidia-smi -c DEFAULT"),
        }
    }
}

// === impl Scales ===

impl Scales {
    /// All of a GPU, and nothing twice.
    pub const WHOLE: Self = Self { memory: 100, cores: 100 };
}

impl Default for Scales {
    fn default() -> Self {
        Self::WHOLE
    }
}

// === impl Health ===

impl Health {
    /// Unhealthy for this reason.
    pub fn unhealthy(reason: impl Into<Arc<str>>) -> Self {
        Self::Unhealthy { reason: reason.into() }
    }

    /// Why no new shares are allocated from it, for people; `None` if they are.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Healthy => None,
            Self::Cordoned { .. } => Some(self.to_string()),
            Self::Unhealthy { reason } => Some(reason.to_string()),
        }
    }

    /// This health under a cordon.
    #[must_use]
    pub fn cordoned(self) -> Self {
        match self {
            Self::Healthy => Self::Cordoned { also: None },
            Self::Unhealthy { reason } => Self::Cordoned { also: Some(reason) },
            Self::Cordoned { .. } => self,
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("healthy"),
            Self::Cordoned { also: None } => f.write_str("cordoned"),
            Self::Cordoned { also: Some(reason) } => write!(f, "cordoned; {reason}"),
            Self::Unhealthy { reason } if reason.is_empty() => f.write_str("unhealthy"),
            Self::Unhealthy { reason } => write!(f, "unhealthy: {reason}"),
        }
    }
}
