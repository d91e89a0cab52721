//! Configuration that daemon, webhook and kubectl-divvy share: the ConfigMap `divvy-config`.
//!
//! Keys decide how a request is read and where it fits. Parts that differed in one of them would count pods differently.

mod keys;
mod list;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::limits::request_resources;
use crate::names::BadResourceName;
use crate::request::Defaults;
use crate::{Cores, Memory, MemoryAmount, ResourceName, ResourceNames};

pub use keys::ClusterConfig;
pub use list::{List, from_text};

/// Key of the ConfigMap whose value is a [`ClusterConfig`] in YAML.
pub const KEY: &str = "config.yaml";
/// Scheduler of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Default of `slotsPerCard`.
pub const SLOTS_PER_CARD: u32 = 32;

/// Format of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// The only one so far.
    #[serde(rename = "v1")]
    V1,
}

/// Why a configuration that can be parsed is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterConfigError {
    /// No [`Version`].
    #[error("version is missing: the first line should be \"version: v1\"")]
    NoVersion,
    /// Two of the four resources have one name.
    #[error(
        "resource {0} stands for two amounts: resourceCount, resourceMemory, resourceMemoryPercentage and resourceCores must differ"
    )]
    SameResource(ResourceName),
    /// The name that contains the unit is too long.
    #[error("resourceMemory with memoryUnit in its name: {0}")]
    UnitName(BadResourceName),
}

/// How memory and compute reach scheduler and kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Advertise {
    /// As amounts in the Node's status.
    #[default]
    Amounts,
    /// In coarse units, each a device of the device-plugin API. A kubelet takes a resource that had a plugin for one of
    /// devices until five minutes after the plugin's end (`endpointStopGracePeriod`), and refuses pods that name it:
    /// after a change back to amounts, wait that long before pods ask for cores.
    Devices,
}

/// Who chooses the nodes of pods that request GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduling {
    /// The webhook's leader: a pod has the gate [`GATE`](crate::names::GATE) until it is planned and its node nominated.
    #[default]
    Gates,
    /// kube-scheduler, which calls the webhook's extender.
    Extender,
    /// kube-scheduler, by amounts per node; the node chooses the GPUs.
    Node,
}

/// Memory of a request that names cores alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DefaultMemory {
    /// Percentage equal to the request's cores.
    #[default]
    SameAsCores,
    /// This, of each GPU.
    Amount(MemoryAmount),
}

/// A whole number from `LOW` to `HIGH`. Read from text, so that file, flag and variable follow the same rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Within<const LOW: u32, const HIGH: u32>(u32);

/// Something that is done or left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// Left.
    #[default]
    Off,
    /// Done.
    On,
}

const SAME_AS_CORES: &str = "same-as-cores";

// === impl ClusterConfig ===

impl ClusterConfig {
    /// Refuses a text without a version, and names that don't go together.
    pub fn check(&self) -> Result<(), ClusterConfigError> {
        self.version.ok_or(ClusterConfigError::NoVersion)?;
        self.resource_names().map(drop)
    }

    /// Resources that requests are written in.
    pub fn resource_names(&self) -> Result<ResourceNames, ClusterConfigError> {
        self.advertise.request_names(self.amount_names(), Memory::mib(self.memory_unit.get().into()))
    }

    /// Resources of [`Advertise::Amounts`], whichever way is configured.
    pub fn amount_names(&self) -> ResourceNames {
        ResourceNames {
            count: self.resource_count.clone(),
            memory: self.resource_memory.clone(),
            memory_percentage: self.resource_memory_percentage.clone(),
            cores: self.resource_cores.clone(),
            ..ResourceNames::default()
        }
    }

    /// Amounts that complete a request.
    pub fn request_defaults(&self) -> Defaults {
        Defaults { memory: self.default_memory.amount(), cores: Cores::new(self.default_cores.get()) }
    }
}

// === impl Advertise ===

impl Advertise {
    /// Resources that requests are written in, of those for amounts; `unit` is a device's memory. Refused if two names
    /// are the same, or the unit makes one too long.
    pub fn request_names(self, amounts: ResourceNames, unit: Memory) -> Result<ResourceNames, ClusterConfigError> {
        let mut seen = HashSet::new();
        if let Some(twice) = request_resources(&amounts).into_iter().find(|name| !seen.insert(name.as_str())) {
            return Err(ClusterConfigError::SameResource(twice.clone()));
        }
        match self {
            Self::Amounts => Ok(amounts),
            Self::Devices => amounts.in_units(unit).map_err(ClusterConfigError::UnitName),
        }
    }
}

// === impl DefaultMemory ===

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

// === impl Within ===

impl<const LOW: u32, const HIGH: u32> Within<LOW, HIGH> {
    /// A default. It must be in its own range.
    pub const fn new(value: u32) -> Self {
        assert!(LOW <= value && value <= HIGH, "a default is in its own range");
        Self(value)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const LOW: u32, const HIGH: u32> TryFrom<String> for Within<LOW, HIGH> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let value = text.parse().ok().filter(|value| (LOW..=HIGH).contains(value));
        value.map(Self).ok_or_else(|| format!("\"{text}\" is not a whole number from {LOW} to {HIGH}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::PolicyName;

    fn read(text: &str) -> Result<ClusterConfig, String> {
        let config: ClusterConfig = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        config.check().map(|()| config).map_err(|error| error.to_string())
    }

    #[test]
    fn absent_keys_have_their_defaults() {
        assert_eq!(read("version: v1"), Ok(ClusterConfig::default()));
        let config = read("version: v1\nscheduling: node\nschedulers: []").expect("valid");
        assert_eq!((config.scheduling, config.schedulers.0), (Scheduling::Node, Vec::new()));
        let config = read("version: v1\nadvertise: devices\ndefaultMemory: 25%\ndefaultCores: 10").expect("valid");
        let names = config.resource_names().expect("valid");
        assert_eq!(names.memory.as_str(), "nvidia.com/gpumem-256mi");
        assert_eq!(config.request_defaults().memory, Some(MemoryAmount::Percent(25)));
        assert_eq!(config.request_defaults().cores, Cores::new(10));
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused() {
        for (text, problem) in [
            ("slotsPerCard: 4", "version is missing"),
            ("version: v2", "v2"),
            ("version: v1\nslots: 4", "slots"),
            ("version: v1\nslotsPerCard: 0", "from 1 to 256"),
            ("version: v1\nresourceCores: nvidia.com/gpu", "stands for two amounts"),
            ("version: v1\nnodePolicy: best", "best"),
            ("version: v1\nscheduling: on", "expected one of gates, extender, node"),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(problem), "{text}: {refused}");
        }
    }

    #[test]
    fn config_round_trips() {
        let config = ClusterConfig { node_policy: Some(PolicyName::Spread), ..ClusterConfig::default() };
        let text = serde_saphyr::to_string(&config).expect("a flat struct");
        assert_eq!(read(&text), Ok(config));
    }
}
