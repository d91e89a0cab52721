//! One container of a pod, and where it stands in there.

use std::collections::BTreeMap;
use std::fmt;

use divvy_api::{ContainerKind, ContainerSpec, ResourceNames};
use serde::de::{IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer};

use crate::admission::patch::{self, Changes};

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(crate) struct Container {
    name: Option<String>,
    pub(super) restart_policy: Option<String>,
    resources: Option<Resources>,
    pub(crate) env: Option<Vec<EnvVar>>,
    volume_mounts: Option<Vec<VolumeMount>>,
    security_context: Option<SecurityContext>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct Resources {
    limits: Option<Amounts>,
    requests: Option<Amounts>,
}

/// Quantities by resource.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// A string on the wire; a bare number is a legal quantity too.
#[derive(Clone, Debug)]
pub(crate) struct Quantity(pub(crate) String);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(crate) struct EnvVar {
    name: Option<String>,
    value: Option<String>,
    value_from: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct VolumeMount {
    mount_path: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object")]
struct SecurityContext {
    privileged: Option<bool>,
}

/// A container and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    pub(crate) container: &'p Container,
    pub(super) kind: ContainerKind,
    /// `spec.containers` or one of the other two lists.
    pub(super) list: &'static str,
    pub(super) index: usize,
}

// === impl Container ===

impl Container {
    /// Changes limits and requests, which are made where there are none.
    pub(super) fn change_amounts(&mut self, limits: &Changes, requests: &Changes) {
        let resources = self.resources.get_or_insert_default();
        for (list, changes) in [(&mut resources.limits, limits), (&mut resources.requests, requests)] {
            if !changes.is_empty() {
                patch::apply(changes, list.get_or_insert_default(), |text| Quantity(text.to_owned()));
            }
        }
    }
}

// === impl Place ===

impl<'p> Place<'p> {
    /// `spec.containers[0]`
    pub(crate) fn field(&self) -> String {
        format!("{}[{}]", self.list, self.index)
    }

    /// `/spec/containers/0`
    pub(crate) fn pointer(&self) -> String {
        format!("/{}/{}", self.list.replace('.', "/"), self.index)
    }

    pub(crate) fn name(&self) -> &'p str {
        self.container.name.as_deref().unwrap_or_default()
    }

    /// Whether there is anything that limits and requests could be written into.
    pub(crate) fn has_resources(&self) -> bool {
        self.container.resources.is_some()
    }

    pub(crate) fn limits(&self) -> Option<&'p Amounts> {
        self.container.resources.as_ref()?.limits.as_ref()
    }

    pub(crate) fn requests(&self) -> Option<&'p Amounts> {
        self.container.resources.as_ref()?.requests.as_ref()
    }

    /// Every resource that it names.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &'p str> {
        self.amounts().map(|(name, _)| name)
    }

    /// All limits and requests.
    pub(crate) fn amounts(&self) -> impl Iterator<Item = (&'p str, &'p Quantity)> {
        let lists = self.limits().into_iter().chain(self.requests());
        lists.flatten().map(|(name, amount)| (name.as_str(), amount))
    }

    pub(crate) fn is_privileged(&self) -> bool {
        self.container.security_context.as_ref().and_then(|context| context.privileged).unwrap_or(false)
    }

    /// Variables of this name, with their positions; a name may stand in the list more than once.
    pub(crate) fn variables(&self, name: &str) -> impl Iterator<Item = (usize, &'p EnvVar)> {
        let all = self.container.env.iter().flatten().enumerate();
        all.filter(move |(_, variable)| variable.name.as_deref() == Some(name))
    }

    /// `spec.containers[0].env[2]`
    pub(crate) fn variable_field(&self, position: usize) -> String {
        format!("{}.env[{position}]", self.field())
    }

    /// Where its volumes are mounted, with the fields that say so.
    pub(crate) fn mount_paths(&self) -> impl Iterator<Item = (String, &'p str)> {
        let field = self.field();
        let all = self.container.volume_mounts.iter().flatten().enumerate();
        all.filter_map(move |(index, mount)| {
            Some((format!("{field}.volumeMounts[{index}].mountPath"), mount.mount_path.as_deref()?))
        })
    }

    /// What dialects read of it.
    pub(super) fn as_written(&self, is_totalled: bool) -> divvy_systems::Container {
        let texts = |amounts: Option<&Amounts>| {
            let texts = amounts.into_iter().flatten().map(|(name, amount)| (name.clone(), amount.0.clone()));
            texts.collect()
        };
        let variables = self.container.env.iter().flatten();
        let variables =
            variables.filter_map(|variable| Some((variable.name.clone()?, variable.text().map(str::to_owned))));
        divvy_systems::Container {
            field: self.field(),
            name: self.name().to_owned(),
            is_app: self.kind == ContainerKind::App,
            is_totalled,
            limits: texts(self.limits()),
            requests: texts(self.requests()),
            variables: variables.collect(),
        }
    }

    /// What a request is read from.
    pub(crate) fn spec(&self, names: &ResourceNames) -> ContainerSpec {
        let ours = self.limits().into_iter().flatten().filter(|(name, _)| names.is_ours(name));
        let limits = ours.map(|(name, amount)| (name.clone(), amount.0.clone())).collect();
        ContainerSpec { name: self.name().to_owned(), kind: self.kind, index: self.index, limits }
    }
}

// === impl EnvVar ===

impl EnvVar {
    /// The variable's text; `None` if that comes from elsewhere.
    pub(crate) fn text(&self) -> Option<&str> {
        let value = self.value.as_deref().unwrap_or_default();
        self.value_from.is_none().then_some(value)
    }
}

// === impl Quantity ===

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = String;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as \"8Gi\"")
            }

            fn visit_str<E>(self, text: &str) -> Result<String, E> {
                Ok(text.to_owned())
            }

            fn visit_u64<E>(self, number: u64) -> Result<String, E> {
                Ok(number.to_string())
            }

            fn visit_i64<E>(self, number: i64) -> Result<String, E> {
                Ok(number.to_string())
            }

            fn visit_f64<E>(self, number: f64) -> Result<String, E> {
                Ok(number.to_string())
            }
        }

        source.deserialize_any(Text).map(Self)
    }
}
