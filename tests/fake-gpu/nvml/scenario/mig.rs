//! Cards that are cut into instances.

use serde::{Deserialize, Serialize};

use super::CardScenario;

/// MIG on a card that can be cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigScenario {
    /// `nvmlDeviceGetMigMode`, current and pending.
    pub enabled: bool,
    /// In the order of their indices; none are found while the mode is off.
    #[serde(default)]
    pub instances: Vec<InstanceScenario>,
}

/// One compute instance, which is what NVML calls a MIG device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceScenario {
    /// `1g.10gb`: what follows `MIG` in its name.
    pub profile: String,
    /// Bytes.
    pub memory_total: u64,
    /// Bytes.
    #[serde(default)]
    pub memory_used: u64,
    /// ID of its GPU instance on the card.
    pub gi: u32,
    /// ID within its GPU instance.
    #[serde(default)]
    pub ci: u32,
    /// `MIG-…`; `None`: made of the card's UUID and the two IDs.
    #[serde(default)]
    pub uuid: Option<String>,
}

// === impl MigScenario ===

impl MigScenario {
    /// In MIG mode, with one GPU instance for each of these profiles and sizes in bytes; their IDs count from 1.
    pub fn cut(profiles: &[(&str, u64)]) -> Self {
        let instance = |(gi, (profile, memory_total)): (u32, &(&str, u64))| InstanceScenario {
            profile: (*profile).to_owned(),
            memory_total: *memory_total,
            memory_used: 0,
            gi,
            ci: 0,
            uuid: None,
        };
        Self { enabled: true, instances: (1..).zip(profiles).map(instance).collect() }
    }
}

// === impl InstanceScenario ===

impl InstanceScenario {
    /// The UUID under which it is found on this card.
    pub fn uuid_on(&self, card: &CardScenario) -> String {
        let made = || {
            let whole = card.uuid.strip_prefix("GPU-").unwrap_or(&card.uuid);
            let (_, rest) = whole.split_once('-').unwrap_or(("", whole));
            format!("MIG-{:04x}{:04x}-{rest}", self.gi, self.ci)
        };
        self.uuid.clone().unwrap_or_else(made)
    }
}

// === impl CardScenario ===

impl CardScenario {
    /// The instances that NVML finds, in the order of their indices.
    pub(crate) fn instances(&self) -> &[InstanceScenario] {
        self.mig.as_ref().filter(|mig| mig.enabled).map_or(&[], |mig| &mig.instances)
    }

    /// The instance with this UUID.
    pub(crate) fn instance(&self, uuid: &str) -> Option<&InstanceScenario> {
        self.instances().iter().find(|instance| instance.uuid_on(self) == uuid)
    }
}
