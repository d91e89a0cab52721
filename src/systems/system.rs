//! The record of one other system.

use std::fmt;
use std::sync::Arc;

use divvy_api::ResourceNames;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::draft::Draft;
use crate::reading::Reading;
use crate::{ALL, Devices, Output, Part, Program, Refusal, Words};

/// Another system that shares GPUs: all that daemon, webhook and kubectl know of it.
pub struct System {
    /// Name in `dialects` of the webhook's configuration.
    pub name: &'static str,
    /// Name in sentences.
    pub title: &'static str,
    /// `schedulerName`s of its own schedulers, which nobody runs any more once it is replaced.
    pub schedulers: &'static [&'static str],
    /// What pods of it say.
    pub words: Words,
    /// Devices of its plugins, as the kubelet keeps them on record.
    pub devices: &'static [Devices],
    /// Annotations with the UUIDs of a container's GPUs, for devices whose IDs are `<UUID>-<n>`, under a name that Divvy has too:
    /// the kubelet draws such IDs, and the container uses what the system's scheduler has chosen.
    pub drawn_ids: &'static [&'static str],
    /// What the node tells programs that were written for it.
    pub outputs: &'static [Output],
    /// Programs that it runs in a cluster.
    pub programs: &'static [Program],
    /// Whether it counts `limits.…` of Divvy's names in ResourceQuotas by itself: Kubernetes counts requests of such resources alone.
    pub counts_limits: bool,
    /// A unit of memory that its nodes tell.
    pub unit: Option<UnitSetting>,
    /// The setting without which its words can't be translated.
    pub required: Option<RequiredSetting>,
    /// Reads its settings.
    pub(crate) read: fn(Value) -> Result<Settings, serde_json::Error>,
}

/// A setting for the unit of a resource that counts memory, `Gi` or `Mi`, which the amounts on the system's nodes tell.
#[derive(Clone, Copy, Debug)]
pub struct UnitSetting {
    /// Key in the configuration.
    pub key: &'static str,
    /// Resource that counts the memory of all GPUs of a node.
    pub memory: &'static str,
    /// Resource that counts these.
    pub gpus: &'static str,
}

/// A setting that nobody but an administrator knows.
#[derive(Clone, Copy, Debug)]
pub struct RequiredSetting {
    /// Resource that means nothing without it.
    pub resource: &'static str,
    /// As it is written: `replicas: N`.
    pub example: &'static str,
    /// What isn't known.
    pub unknown: &'static str,
    /// Where it may stand.
    pub hint: &'static str,
}

/// A system's settings, by which requests in its words are read.
pub(crate) trait Translate: fmt::Debug + Send + Sync {
    /// Resources that its users write whose names depend on the configuration; without Divvy's.
    fn resources(&self, _names: &ResourceNames) -> Vec<String> {
        Vec::new()
    }

    /// Whether these settings say what Divvy's own names mean, where a pod has no words of another system.
    fn reads_our_names(&self, _names: &ResourceNames) -> bool {
        false
    }

    /// Request of a container that names one of its resources, or of Divvy's if it reads them; `None`: no GPU.
    fn part(&self, _container: Reading<'_>, _draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        Ok(None)
    }

    /// What it says for the whole pod, after all containers.
    fn pod(&self, _draft: &mut Draft<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Settings of a system.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Settings {
    /// All of them, also those that were left out.
    pub(crate) values: Value,
    #[serde(skip)]
    pub(crate) translate: Arc<dyn Translate>,
}

// === impl System ===

impl System {
    /// A system with these settings, of which nothing else is known.
    pub(crate) const fn new<T>(name: &'static str, title: &'static str) -> Self
    where
        T: Translate + Serialize + DeserializeOwned + 'static,
    {
        Self {
            name,
            title,
            schedulers: &[],
            words: Words::NONE,
            devices: &[],
            drawn_ids: &[],
            outputs: &[],
            programs: &[],
            counts_limits: false,
            unit: None,
            required: None,
            read: Settings::read::<T>,
        }
    }

    /// The system of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.into_iter().find(|system| system.name == name)
    }

    /// Path of its page in Divvy's documentation.
    pub fn page(&self) -> String {
        format!("docs/dialects/{}.md", self.name)
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

// === impl Settings ===

impl Settings {
    pub(crate) fn read<T>(values: Value) -> Result<Self, serde_json::Error>
    where
        T: Translate + Serialize + DeserializeOwned + 'static,
    {
        let settings: T = serde_json::from_value(values)?;
        Ok(Self { values: serde_json::to_value(&settings)?, translate: Arc::new(settings) })
    }
}
