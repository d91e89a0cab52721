//! Shares: what one container holds on one card, and the tiers that enforce it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card::CardId;
use crate::pod::PodSum;
use crate::quantity::{Cores, Memory};

/// Part of one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Share {
    /// Memory that the container may allocate, in MiB on the wire.
    #[serde(rename = "memoryMi")]
    pub memory: Memory,
    /// Part of the memory for which host memory is booked instead of the GPU's, in MiB on the wire; nothing unless the pod
    /// asks for oversubscription.
    #[serde(rename = "hostMemoryMi", default, skip_serializing_if = "Memory::is_zero")]
    pub host: Memory,
    /// Guaranteed compute; 0 competes for time that is guaranteed to nobody or unused.
    pub cores: Cores,
    /// Whether no other container may hold a share of this GPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
}

/// How a share is enforced, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Bookkeeping alone: recorded in the ledger and the limits file, enforced by nothing.
    #[default]
    Accounting,
    /// `libdivvy.so` inside the container.
    Shim,
    /// Limits of the MPS server, kept by the driver.
    Mps,
    /// The hardware, because the container has a MIG instance to itself.
    Mig,
}

/// A tier that doesn't exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a tier: expected accounting, shim, mps or mig")]
pub struct UnknownTier(String);

// === impl Share ===

impl Share {
    /// Part of the memory that is booked of the GPU.
    #[must_use]
    pub fn on_card(&self) -> Memory {
        self.memory.saturating_sub(self.host)
    }
}

impl PodSum for Share {
    fn plus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_add(other.memory),
            host: self.host.saturating_add(other.host),
            cores: self.cores.saturating_add(other.cores),
            exclusive: self.exclusive || other.exclusive,
        }
    }

    /// The GPU's memory and the host's are parts of their own: what needs more memory may need less of either.
    fn max(self, other: Self) -> Self {
        let host = self.host.max(other.host);
        Self {
            memory: self.on_card().max(other.on_card()).saturating_add(host),
            host,
            cores: self.cores.max(other.cores),
            exclusive: self.exclusive || other.exclusive,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} memory", self.memory)?;
        if !self.host.is_zero() {
            write!(f, " ({} of it host memory)", self.host)?;
        }
        write!(f, ", {} cores", self.cores)?;
        if self.exclusive { f.write_str(", exclusive") } else { Ok(()) }
    }
}

// === impl Tier ===

impl Tier {
    /// The name that annotations, metrics and configuration use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accounting => "accounting",
            Self::Shim => "shim",
            Self::Mps => "mps",
            Self::Mig => "mig",
        }
    }

    /// Whether a node of this tier serves a pod that requests `wanted`: a weaker tier, the same one, or `mig` where the node
    /// has MIG instances, whose tier is the hardware's whatever the node's is.
    #[must_use]
    pub fn serves(self, wanted: Self, has_instances: impl FnOnce() -> bool) -> bool {
        wanted <= self || (wanted == Self::Mig && has_instances())
    }

    /// Tier of a share of this card in a container of tier `otherwise`: a MIG instance held alone is enforced by hardware.
    #[must_use]
    pub fn of_share(card: &CardId, share: &Share, otherwise: Self) -> Self {
        if share.exclusive && card.is_instance() { Self::Mig } else { otherwise }
    }
}

impl FromStr for Tier {
    type Err = UnknownTier;

    fn from_str(text: &str) -> Result<Self, UnknownTier> {
        [Self::Accounting, Self::Shim, Self::Mps, Self::Mig]
            .into_iter()
            .find(|tier| tier.as_str() == text)
            .ok_or_else(|| UnknownTier(text.to_owned()))
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
