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
use crate::quantity::parse_cpu;

/// An entry of `spec.initContainers` or `spec.containers`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
    #[serde(borrow)]
    resources: Option<Resources<'a>>,
}

#[derive(Deserialize)]
struct Resources<'a> {
    limits: Option<FilteredMap<ExtendedResources>>,
    #[serde(borrow)]
    requests: Option<Requests<'a>>,
}

/// `resources.requests` and `spec.overhead`, reduced to CPU.
#[derive(Deserialize)]
pub struct Requests<'a> {
    #[serde(borrow)]
    cpu: Option<Text<'a>>,
}

/// Thousandths of a core.
#[derive(Clone, Copy, Default)]
struct Milli(u32);

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

/// Thousandths of a CPU core that a pod with these containers and this overhead requests, as scheduler and kubelet add them
/// up. What isn't a quantity counts nothing.
pub fn requested_cpu(
    init: Option<&[Container<'_>]>,
    apps: Option<&[Container<'_>]>,
    overhead: Option<&Requests<'_>>,
) -> u32 {
    let init = init.unwrap_or_default().iter().map(|container| (container.kind_of_init(), container.cpu()));
    let apps = apps.unwrap_or_default().iter().map(|container| (ContainerKind::App, container.cpu()));
    peak(init.chain(apps)).plus(overhead.map(Requests::milli).unwrap_or_default()).0
}

// === impl Container ===

impl Container<'_> {
    fn kind_of_init(&self) -> ContainerKind {
        if self.restart_policy.as_deref() == Some("Always") { ContainerKind::Sidecar } else { ContainerKind::Init }
    }

    fn cpu(&self) -> Milli {
        self.resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref())
            .map(Requests::milli)
            .unwrap_or_default()
    }

    fn spec(self, kind: ContainerKind, index: usize) -> ContainerSpec {
        let limits =
            self.resources.and_then(|resources| resources.limits).map(FilteredMap::entries).unwrap_or_default();
        ContainerSpec { name: self.name.into_owned(), kind, index, limits }
    }
}

// === impl Requests ===

impl Requests<'_> {
    fn milli(&self) -> Milli {
        let milli = |text: &str| parse_cpu(text).unwrap_or(0);
        Milli(match &self.cpu {
            Some(Text::Text(text)) => milli(text),
            Some(Text::Number(number)) => milli(&number.to_string()),
            None => 0,
        })
    }
}

// === impl Milli ===

impl PodSum for Milli {
    fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
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
