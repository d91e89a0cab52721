//! Values of settings.

use std::num::NonZeroU64;

use divvy_api::MemoryAmount;
use divvy_api::quantity::parse_memory;
use serde::{Deserialize, Serialize};

use crate::Size;

/// Whole GPUs, or a part of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum WholeOrPart {
    Whole,
    Amount(MemoryAmount),
}

/// Memory of one unit of a resource, from 1Mi on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct MemoryUnit(u64);

/// MiB of one unit of a resource, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct MemoryFactor(NonZeroU64);

// === impl WholeOrPart ===

impl TryFrom<String> for WholeOrPart {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "whole" { Ok(Self::Whole) } else { text.parse().map(Self::Amount) }
    }
}

impl From<WholeOrPart> for String {
    fn from(part: WholeOrPart) -> Self {
        match part {
            WholeOrPart::Whole => "whole".to_owned(),
            WholeOrPart::Amount(amount) => amount.to_string(),
        }
    }
}

impl From<MemoryAmount> for Size {
    fn from(amount: MemoryAmount) -> Self {
        match amount {
            MemoryAmount::Absolute(memory) => Self::Mib(memory.as_mib()),
            MemoryAmount::Percent(percent) => Self::Percent(percent.into()),
        }
    }
}

// === impl MemoryFactor ===

impl MemoryFactor {
    pub(crate) fn mib(self) -> u64 {
        self.0.get()
    }
}

impl Default for MemoryFactor {
    fn default() -> Self {
        Self(NonZeroU64::MIN)
    }
}

// === impl MemoryUnit ===

impl MemoryUnit {
    pub(crate) fn mib(self) -> u64 {
        self.0
    }
}

impl Default for MemoryUnit {
    fn default() -> Self {
        Self(1024)
    }
}

impl TryFrom<String> for MemoryUnit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match parse_memory(&text) {
            Ok(memory) if !memory.is_zero() => Ok(Self(memory.as_mib())),
            Ok(_) => Err(format!("\"{text}\" is nothing: expected a unit such as 1Gi or 256Mi")),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl From<MemoryUnit> for String {
    fn from(MemoryUnit(mib): MemoryUnit) -> Self {
        format!("{mib}Mi")
    }
}
