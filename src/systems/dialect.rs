//! `dialects` of the configuration: which systems' words are translated, and what a cluster must say of each.

use std::collections::BTreeMap;
use std::fmt;

use divvy_api::ResourceNames;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::draft::Draft;
use crate::pod::{Container, Pod};
use crate::reading::Reading;
use crate::system::{Settings, Translate};
use crate::{ALL, Context, Key, Refusal, System, Translation};

/// A system whose words are translated: its name, or a map of its name and settings.
#[derive(Clone, Debug, Serialize)]
pub struct Dialect {
    #[serde(rename = "name", serialize_with = "name")]
    system: &'static System,
    #[serde(flatten)]
    settings: Settings,
}

/// Names in the configuration.
const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut at = 0;
    while at < ALL.len() {
        names[at] = ALL[at].name;
        at += 1;
    }
    names
};

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
    let mut readers = dialects.iter().filter(|dialect| dialect.reads_our_names(names));
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
    /// All that need no settings, without any.
    pub fn defaults() -> impl Iterator<Item = Self> {
        ALL.into_iter().filter_map(|system| Self::read(system, Map::new()).ok())
    }

    /// The system.
    pub fn system(&self) -> &'static System {
        self.system
    }

    /// Name in the configuration.
    pub fn name(&self) -> &'static str {
        self.system.name
    }

    /// What is to be changed of a pod that [is written in it](crate::spoken); `None`: nothing.
    ///
    /// Containers whose amounts Divvy has written are left as they are.
    pub fn translate(&self, pod: &Pod, context: Context<'_>) -> Result<Option<Translation>, Refusal> {
        let words = &self.system.words;
        let resources = self.resources(context.names);
        let mut draft = Draft::new(pod, context);
        if let Some(label) = words.opt_out(pod) {
            draft.leave_untranslated(label, &resources);
            return Ok(draft.finish(self.name(), resources));
        }
        for (at, container) in pod.containers.iter().enumerate().filter(|(_, container)| !container.is_totalled) {
            self.translate_container(at, container, &resources, &mut draft)?;
        }
        draft.warn_of_unknown(&resources);
        draft.check_lengths(words)?;
        self.translator().pod(&mut draft)?;
        draft.remove_outputs(words);
        Ok(draft.finish(self.name(), resources))
    }

    fn translate_container(
        &self,
        at: usize,
        container: &Container,
        resources: &[String],
        draft: &mut Draft<'_>,
    ) -> Result<(), Refusal> {
        let names = draft.context.names;
        let mut ours = container.limits.keys().chain(container.requests.keys()).filter(|name| names.is_ours(name));
        let theirs = resources.iter().find(|name| container.names(name));
        let profile = ours.clone().find(|name| names.profile(name).is_some());
        match (theirs, ours.next()) {
            (Some(theirs), Some(ours)) if !self.reads_our_names(names) => {
                return Err(Refusal::Twice { first: container.field_of(theirs), second: container.field_of(ours) });
            }
            (Some(theirs), Some(_)) if profile.is_some() => {
                let field = container.field_of(theirs);
                draft.warn(format!("{field}: has no effect: instances of a MIG profile are the container's alone"));
                draft.keep_instances(at);
                return Ok(());
            }
            (None, Some(_)) if profile.is_some() => return Ok(()),
            (None, Some(_)) if self.reads_our_names(names) => {}
            (None, _) => return Ok(()),
            (Some(_), _) => {}
        }
        let part = self.translator().part(Reading(container), draft)?;
        draft.set_part(at, part);
        Ok(())
    }

    /// Whether a pod has words of the other system that Divvy doesn't have.
    pub fn is_spoken(&self, pod: &Pod, names: &ResourceNames) -> bool {
        self.first_word(pod, names, &[]).is_some()
    }

    /// Where a pod uses a word of this dialect first; these annotations aren't counted.
    pub(crate) fn first_word(&self, pod: &Pod, names: &ResourceNames, others: &[&str]) -> Option<String> {
        let is_word = |key: &&str| pod.annotations.contains_key(*key) && !others.contains(key);
        let written = || self.system.words.annotations.iter().copied().find(is_word);
        let requesting = || self.requesting(&pod.annotations).map(|(key, _)| key).find(|key| !others.contains(key));
        let annotation = || Some(format!("annotation {}", written().or_else(requesting)?));
        self.first_resource(pod, names).or_else(annotation)
    }

    /// Where a pod names a resource of this dialect first.
    pub(crate) fn first_resource(&self, pod: &Pod, names: &ResourceNames) -> Option<String> {
        let resources = self.resources(names);
        pod.containers.iter().find_map(|container| {
            let name = resources.iter().find(|name| container.names(name))?;
            Some(container.field_of(name))
        })
    }

    /// Resources of the other system that its users write.
    pub fn resources(&self, names: &ResourceNames) -> Vec<String> {
        let known = self.system.words.resources.iter().map(ToString::to_string);
        known.chain(self.translator().resources(names)).collect()
    }

    /// Whether it says what Divvy's own names mean, where a pod has no words of another system.
    pub(crate) fn reads_our_names(&self, names: &ResourceNames) -> bool {
        self.system.words.shares_names || self.translator().reads_our_names(names)
    }

    /// Those of a pod's annotations that ask for a GPU without any resource, with their values.
    pub fn requesting<'p>(
        &self,
        annotations: &'p BTreeMap<String, String>,
    ) -> impl Iterator<Item = (&'p str, &'p str)> + use<'p> {
        let keys: &'static [Key] = self.system.words.requests;
        let all = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        all.filter(|(key, _)| keys.iter().any(|known| known.matches(key)))
    }

    /// The value of a setting.
    pub fn setting(&self, key: &str) -> &Value {
        &self.settings.values[key]
    }

    pub(crate) fn translator(&self) -> &dyn Translate {
        &*self.settings.translate
    }

    fn read(system: &'static System, settings: Map<String, Value>) -> Result<Self, serde_json::Error> {
        Ok(Self { system, settings: (system.read)(settings.into())? })
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.settings.values == other.settings.values
    }
}

impl Eq for Dialect {}

impl<'de> Deserialize<'de> for Dialect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrMap;

        impl<'de> Visitor<'de> for NameOrMap {
            type Value = Dialect;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a system, or a map of its name and settings")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Dialect, E> {
                named(name, Map::new()).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Dialect, A::Error> {
                let mut settings: Map<String, Value> = Map::deserialize(MapAccessDeserializer::new(map))?;
                let name = settings.remove("name").ok_or_else(|| A::Error::missing_field("name"))?;
                let named = String::deserialize(name).and_then(|name| named(&name, settings));
                named.map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_any(NameOrMap)
    }
}

fn named(name: &str, settings: Map<String, Value>) -> Result<Dialect, serde_json::Error> {
    let system = System::named(name).ok_or_else(|| serde_json::Error::unknown_variant(name, &NAMES))?;
    Dialect::read(system, settings)
}

fn name<S: serde::Serializer>(system: &System, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(system.name)
}
