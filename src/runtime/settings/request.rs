//! What requests are written in and how they are completed: the same on nodes and in admission, or pods would be counted
//! differently.

use std::collections::HashSet;

use divvy_api::quantity::Memory;
use divvy_api::request::request_resources;
use divvy_api::{MemoryAmount, ResourceNames};
use serde::{Deserialize, Serialize};

use crate::settings::ConfigError;

/// How memory and compute reach scheduler and kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Advertise {
    /// As amounts in the Node's status.
    #[default]
    Amounts,
    /// In coarse units, each a device of the device-plugin API. A kubelet takes a resource that had a plugin for one of
    /// devices until five minutes after the plugin's end (`endpointStopGracePeriod`), and refuses pods that name it:
    /// whoever changes back to amounts has to wait that long before pods ask for cores.
    Devices,
}

/// Memory of a request that names cores alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DefaultMemory {
    /// The same percentage as its cores.
    SameAsCores,
    /// This, of each card.
    Amount(MemoryAmount),
}

// === impl Advertise ===

impl Advertise {
    /// The resources that requests are written in, of those for amounts; `unit` is a device's memory. Refused if two names
    /// are the same, or the unit makes one too long.
    pub fn request_names(self, amounts: ResourceNames, unit: Memory) -> Result<ResourceNames, ConfigError> {
        let mut seen = HashSet::new();
        if let Some(twice) = request_resources(&amounts).into_iter().find(|name| !seen.insert(name.as_str())) {
            return Err(ConfigError::SameResource(twice.clone()));
        }
        match self {
            Self::Amounts => Ok(amounts),
            Self::Devices => amounts.in_units(unit).map_err(ConfigError::UnitName),
        }
    }
}

// === impl DefaultMemory ===

const SAME_AS_CORES: &str = "same-as-cores";

impl DefaultMemory {
    /// The amount; `None`: the same percentage as the request's cores.
    pub fn amount(self) -> Option<MemoryAmount> {
        match self {
            Self::SameAsCores => None,
            Self::Amount(amount) => Some(amount),
        }
    }
}

impl TryFrom<String> for DefaultMemory {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            SAME_AS_CORES => Ok(Self::SameAsCores),
            amount => amount.parse().map(Self::Amount).map_err(|error| format!("{error}, or {SAME_AS_CORES}")),
        }
    }
}

impl From<DefaultMemory> for String {
    fn from(memory: DefaultMemory) -> Self {
        memory.amount().map_or_else(|| SAME_AS_CORES.to_owned(), Self::from)
    }
}
