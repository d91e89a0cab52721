//! Decoder of the fields of `v1.Pod` that Divvy uses: containers with their limits, and annotations.
//!
//! Whole lists of pods are decoded before an answer, so nothing is copied that isn't kept.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{ContainerKind, ContainerSpec, PodSum, peak};
use crate::quantity::{parse_bytes, parse_cpu};

/// An entry of `spec.initContainers` or `spec.containers`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
    resources: Option<ContainerResources>,
}

#[derive(Deserialize)]
struct ContainerResources {
    limits: Option<FilteredMap<ExtendedResources>>,
    requests: Option<Resources>,
}

/// `resources.requests` or `spec.overhead`, or what a Node has of them: CPU in thousandths of a core, memory and storage in
/// bytes, all else in units. What isn't a quantity counts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a CPU core.
    pub cpu_milli: u32,
    /// All but CPU, by name.
    pub others: BTreeMap<Box<str>, u64>,
}

/// String map that drops the keys its filter doesn't want: a pod's last applied configuration is as long as the pod.
pub struct FilteredMap<F>(BTreeMap<String, String>, PhantomData<F>);

/// Filter on the keys of a map.
pub trait KeyFilter {
    /// Whether the entry with this key is decoded.
    fn wants(key: &str) -> bool;
}

struct ExtendedResources;

/// A quantity is a string on the wire; a bare number is taken as well.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Number(serde_json::Number),
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// A pod's containers in admission order, from its two lists, with extended resources alone among their limits.
pub fn containers(init: Option<Vec<Container<'_>>>, apps: Option<Vec<Container<'_>>>) -> Vec<ContainerSpec> {
    let init = init.unwrap_or_default().into_iter().enumerate().map(|(index, container)| {
        let kind = container.kind_of_init();
        container.spec(kind, index)
    });
    let apps = apps.unwrap_or_default().into_iter().enumerate();
    init.chain(apps.map(|(index, container)| container.spec(ContainerKind::App, index))).collect()
}

/// What a pod with these containers and this overhead requests, as scheduler and kubelet add it up (`PodRequests` of
/// `k8s.io/component-helpers`): what is requested for the pod as a whole replaces the sums of its containers.
pub fn requested(
    init: Option<&[Container<'_>]>,
    apps: Option<&[Container<'_>]>,
    of_pod: Option<Resources>,
    overhead: Option<Resources>,
) -> Resources {
    let init = init.unwrap_or_default().iter().map(|container| (container.kind_of_init(), container.requests()));
    let apps = apps.unwrap_or_default().iter().map(|container| (ContainerKind::App, container.requests()));
    peak(init.chain(apps)).replaced_by(of_pod.unwrap_or_default()).plus(overhead.unwrap_or_default())
}

// === impl Container ===

impl Container<'_> {
    fn kind_of_init(&self) -> ContainerKind {
        if self.restart_policy.as_deref() == Some("Always") { ContainerKind::Sidecar } else { ContainerKind::Init }
    }

    fn requests(&self) -> Resources {
        self.resources.as_ref().and_then(|resources| resources.requests.clone()).unwrap_or_default()
    }

    fn spec(self, kind: ContainerKind, index: usize) -> ContainerSpec {
        let limits =
            self.resources.and_then(|resources| resources.limits).map(FilteredMap::entries).unwrap_or_default();
        ContainerSpec { name: self.name.into_owned(), kind, index, limits }
    }
}

// === impl Resources ===

impl Resources {
    /// So many thousandths of a core, and nothing else.
    pub fn of_cpu(cpu_milli: u32) -> Self {
        Self { cpu_milli, ..Self::default() }
    }

    /// These amounts and `other`'s together, one by one.
    fn with(mut self, other: Self, both: fn(u64, u64) -> u64) -> Self {
        let cpu = both(self.cpu_milli.into(), other.cpu_milli.into());
        self.cpu_milli = u32::try_from(cpu).unwrap_or(u32::MAX);
        for (name, amount) in other.others {
            let known = self.others.entry(name).or_default();
            *known = both(*known, amount);
        }
        self
    }

    /// These amounts, but for those that `other` has.
    fn replaced_by(mut self, other: Self) -> Self {
        if other.cpu_milli > 0 {
            self.cpu_milli = other.cpu_milli;
        }
        self.others.extend(other.others);
        self
    }

    /// Adds amounts.
    pub fn add(&mut self, other: &Self) {
        *self = std::mem::take(self).with(other.clone(), u64::saturating_add);
    }

    /// Takes amounts away, down to nothing.
    pub fn subtract(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.saturating_sub(other.cpu_milli);
        for (name, amount) in &other.others {
            if let Some(known) = self.others.get_mut(name) {
                *known = known.saturating_sub(*amount);
            }
        }
    }

    /// The amount of a resource that isn't CPU; `None` if it isn't there.
    pub fn amount(&self, name: &str) -> Option<u64> {
        self.others.get(name).copied()
    }

    /// The first resource of which this is less than is wanted; of what isn't wanted there may be nothing.
    pub fn lacks<'w>(&self, wanted: &'w Self) -> Option<&'w str> {
        if self.cpu_milli < wanted.cpu_milli {
            return Some("cpu");
        }
        let mut others = wanted.others.iter();
        others.find(|(name, amount)| **amount > self.amount(name).unwrap_or(0)).map(|(name, _)| &**name)
    }
}

impl PodSum for Resources {
    fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn max(self, other: Self) -> Self {
        self.with(other, u64::max)
    }
}

impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Quantities;

        impl<'de> Visitor<'de> for Quantities {
            type Value = Resources;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of quantities")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Resources, A::Error> {
                let mut resources = Resources::default();
                while let Some(Key(key)) = map.next_key()? {
                    let text = match map.next_value()? {
                        Text::Text(text) => text,
                        Text::Number(number) => Cow::Owned(number.to_string()),
                    };
                    if key == "cpu" {
                        resources.cpu_milli = parse_cpu(&text).unwrap_or(0);
                    } else if let Ok(amount) = parse_bytes(&text) {
                        resources.others.insert(key.into(), amount);
                    }
                }
                Ok(resources)
            }
        }

        source.deserialize_map(Quantities)
    }
}

// === impl FilteredMap ===

impl KeyFilter for ExtendedResources {
    /// Extended resources have a domain; `cpu`, `memory` and their like have none.
    fn wants(key: &str) -> bool {
        key.contains('/')
    }
}

impl<F> FilteredMap<F> {
    /// Decoded entries.
    pub fn entries(self) -> BTreeMap<String, String> {
        self.0
    }
}

impl<'de, F: KeyFilter> Deserialize<'de> for FilteredMap<F> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Entries<F>(PhantomData<F>);

        impl<'de, F: KeyFilter> Visitor<'de> for Entries<F> {
            type Value = FilteredMap<F>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FilteredMap<F>, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(Key(key)) = map.next_key()? {
                    if F::wants(&key) {
                        let value = match map.next_value()? {
                            Text::Text(text) => text.into_owned(),
                            Text::Number(number) => number.to_string(),
                        };
                        entries.insert(key.into_owned(), value);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(FilteredMap(entries, PhantomData))
            }
        }

        source.deserialize_map(Entries(PhantomData))
    }
}
