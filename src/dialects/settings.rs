//! `dialects` of the configuration: which systems' words are translated, and what a cluster must say of each.

use std::collections::BTreeMap;
use std::fmt;

use divvy_api::ResourceNames;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::draft::Draft;
use crate::elastic_gpu::ElasticGpu;
use crate::gpu_manager::GpuManager;
use crate::gpu_model::GpuModel;
use crate::gpushare::Gpushare;
use crate::hami::Hami;
use crate::kai::Kai;
use crate::koordinator::Koordinator;
use crate::nano_gpu::NanoGpu;
use crate::pod::Pod;
use crate::time_slicing::TimeSlicing;
use crate::vgpu_manager::VgpuManager;
use crate::volcano::Volcano;
use crate::{Context, Key, Refusal, System, Translation};

/// A system whose words are translated: its name, or a map of its name and settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Dialect(Settings);

/// Settings by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
enum Settings {
    Hami(Hami),
    NanoGpu(NanoGpu),
    ElasticGpu(ElasticGpu),
    Gpushare(Gpushare),
    GpuModel(GpuModel),
    GpuManager(GpuManager),
    Volcano(Volcano),
    Kai(Kai),
    Koordinator(Koordinator),
    VgpuManager(VgpuManager),
    TimeSlicing(TimeSlicing),
}

/// Refuses dialects that can't be told apart.
pub fn check(dialects: &[Dialect], names: &ResourceNames) -> Result<(), String> {
    for (at, dialect) in dialects.iter().enumerate() {
        if dialects[..at].iter().any(|before| before.name() == dialect.name()) {
            return Err(format!("dialects: \"{}\" stands in the list twice", dialect.name()));
        }
        for resource in dialect.resources(names) {
            if names.is_ours(&resource) {
                return Err(format!("dialects: {}: {resource} is a resource of Divvy's own", dialect.name()));
            }
            let names_it = |before: &&Dialect| before.resources(names).contains(&resource);
            if let Some(before) = dialects[..at].iter().find(names_it) {
                return Err(format!("dialects: {} and {} both translate {resource}", before.name(), dialect.name()));
            }
        }
    }
    let mut readers = dialects.iter().filter(|dialect| dialect.system().reads_our_names(names));
    match (readers.next(), readers.next()) {
        (Some(first), Some(second)) => Err(format!(
            "dialects: {} and {} both say what {} means: enable one of them",
            first.name(),
            second.name(),
            names.count
        )),
        _ => Ok(()),
    }
}

// === impl Dialect ===

impl Dialect {
    /// All of them, as they are without settings; time-slicing has none.
    pub const NAMES: [&str; 11] = [
        "hami",
        "nano-gpu",
        "elastic-gpu",
        "gpushare",
        "gpu-model",
        "gpu-manager",
        "volcano",
        "kai",
        "koordinator",
        "vgpu-manager",
        "time-slicing",
    ];

    /// Name in the configuration.
    pub fn name(&self) -> &'static str {
        match self.0 {
            Settings::Hami(_) => "hami",
            Settings::NanoGpu(_) => "nano-gpu",
            Settings::ElasticGpu(_) => "elastic-gpu",
            Settings::Gpushare(_) => "gpushare",
            Settings::GpuModel(_) => "gpu-model",
            Settings::GpuManager(_) => "gpu-manager",
            Settings::Volcano(_) => "volcano",
            Settings::Kai(_) => "kai",
            Settings::Koordinator(_) => "koordinator",
            Settings::VgpuManager(_) => "vgpu-manager",
            Settings::TimeSlicing(_) => "time-slicing",
        }
    }

    /// What is to be changed of a pod that [is written in it](crate::spoken); `None`: nothing.
    ///
    /// Containers whose amounts Divvy has written are left as they are.
    pub fn translate(&self, pod: &Pod, context: Context<'_>) -> Result<Option<Translation>, Refusal> {
        Draft::new(pod, context).translation(self.system(), self.name())
    }

    /// Whether a pod has words of the other system that Divvy doesn't have.
    pub fn is_spoken(&self, pod: &Pod, names: &ResourceNames) -> bool {
        self.first_word(pod, names, &[]).is_some()
    }

    /// Where a pod uses a word of this dialect first; these annotations aren't counted.
    pub(crate) fn first_word(&self, pod: &Pod, names: &ResourceNames, others: &[&str]) -> Option<String> {
        let is_word = |key: &&str| pod.annotations.contains_key(*key) && !others.contains(key);
        let input = || self.system().inputs().iter().copied().find(is_word);
        let requesting = || self.requesting(&pod.annotations).map(|(key, _)| key).find(|key| !others.contains(key));
        let annotation = || Some(format!("annotation {}", input().or_else(requesting)?));
        self.first_resource(pod, names).or_else(annotation)
    }

    /// Where a pod names a resource of this dialect first.
    pub(crate) fn first_resource(&self, pod: &Pod, names: &ResourceNames) -> Option<String> {
        let resources = self.system().resources(names);
        pod.containers.iter().find_map(|container| {
            let name = resources.iter().find(|name| container.names(name))?;
            Some(container.field_of(name))
        })
    }

    /// Resources of the other system that its users write.
    pub fn resources(&self, names: &ResourceNames) -> Vec<String> {
        self.system().resources(names)
    }

    /// Annotations that ask for a GPU without any resource.
    pub fn requesting_annotations(&self) -> &'static [Key] {
        self.system().requesting_annotations()
    }

    /// Those of a pod's annotations that do so, with their values.
    pub fn requesting<'p>(
        &self,
        annotations: &'p BTreeMap<String, String>,
    ) -> impl Iterator<Item = (&'p str, &'p str)> {
        let keys = self.requesting_annotations();
        let all = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        all.filter(|(key, _)| keys.iter().any(|known| known.matches(key)))
    }

    pub(crate) fn system(&self) -> &dyn System {
        match &self.0 {
            Settings::Hami(system) => system,
            Settings::NanoGpu(system) => system,
            Settings::ElasticGpu(system) => system,
            Settings::Gpushare(system) => system,
            Settings::GpuModel(system) => system,
            Settings::GpuManager(system) => system,
            Settings::Volcano(system) => system,
            Settings::Kai(system) => system,
            Settings::Koordinator(system) => system,
            Settings::VgpuManager(system) => system,
            Settings::TimeSlicing(system) => system,
        }
    }
}

impl<'de> Deserialize<'de> for Dialect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrMap;

        impl<'de> Visitor<'de> for NameOrMap {
            type Value = Settings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a system, or a map of its name and settings")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Settings, E> {
                Settings::deserialize(serde_json::json!({ "name": name })).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Settings, A::Error> {
                Settings::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(NameOrMap).map(Self)
    }
}
