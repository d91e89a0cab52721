//! `v1.Pod` as the API writes it. A pod is decoded in every call of the scheduler, so nothing is copied that isn't kept.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use divvy_contract::names::PREFIX;
use divvy_contract::{ContainerKind, ContainerSpec};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::PodView;

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
    #[serde(borrow)]
    status: Option<Status<'a>>,
}

#[derive(Default, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    annotations: Option<Kept<Annotations>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    node_name: Option<Cow<'a, str>>,
    priority: Option<i32>,
    #[serde(borrow)]
    init_containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
    resources: Option<Resources>,
}

#[derive(Deserialize)]
struct Resources {
    limits: Option<Kept<Limits>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    phase: Option<Cow<'a, str>>,
    #[serde(borrow)]
    nominated_node_name: Option<Cow<'a, str>>,
}

/// A map of texts without the entries that nobody here reads.
struct Kept<M>(BTreeMap<String, String>, PhantomData<M>);

/// Which entries of a map are read.
trait Reads {
    fn reads(key: &str) -> bool;
}

struct Annotations;
struct Limits;

#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Quantities are strings on the wire; bare numbers are taken as well.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Text(String),
    Number(serde_json::Number),
}

// === impl PodView ===

impl<'de> Deserialize<'de> for PodView {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Pod::deserialize(source).map(Self::from)
    }
}

impl From<Pod<'_>> for PodView {
    fn from(pod: Pod<'_>) -> Self {
        let metadata = pod.metadata.unwrap_or_default();
        let spec = pod.spec.unwrap_or_default();
        let Status { phase, nominated_node_name } = pod.status.unwrap_or_default();
        let phase = phase.unwrap_or_default();
        let node = |name: Option<Cow<'_, str>>| name.map(Cow::into_owned).filter(|name| !name.is_empty());
        let owned = |text: Option<Cow<'_, str>>| text.unwrap_or_default().into_owned();
        let init = spec.init_containers.unwrap_or_default().into_iter().enumerate().map(|(index, container)| {
            let sidecar = container.restart_policy.as_deref() == Some("Always");
            let kind = if sidecar { ContainerKind::Sidecar } else { ContainerKind::Init };
            container.spec(kind, index)
        });
        let apps = spec.containers.unwrap_or_default().into_iter().enumerate();
        let apps = apps.map(|(index, container)| container.spec(ContainerKind::App, index));
        Self {
            uid: owned(metadata.uid),
            namespace: owned(metadata.namespace),
            name: owned(metadata.name),
            node: node(spec.node_name),
            nominated: node(nominated_node_name),
            priority: spec.priority.unwrap_or(0),
            ended: matches!(&*phase, "Succeeded" | "Failed"),
            annotations: metadata.annotations.map(|kept| kept.0).unwrap_or_default(),
            containers: init.chain(apps).collect(),
        }
    }
}

// === impl Container ===

impl Container<'_> {
    fn spec(self, kind: ContainerKind, index: usize) -> ContainerSpec {
        let limits = self.resources.and_then(|resources| resources.limits).map(|kept| kept.0).unwrap_or_default();
        ContainerSpec { name: self.name.into_owned(), kind, index, limits }
    }
}

// === impl Kept ===

impl Reads for Annotations {
    fn reads(key: &str) -> bool {
        key.starts_with(PREFIX)
    }
}

impl Reads for Limits {
    /// Extended resources have a domain; `cpu`, `memory` and their like have none.
    fn reads(key: &str) -> bool {
        key.contains('/')
    }
}

impl<'de, M: Reads> Deserialize<'de> for Kept<M> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Entries<M>(PhantomData<M>);

        impl<'de, M: Reads> Visitor<'de> for Entries<M> {
            type Value = Kept<M>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kept<M>, A::Error> {
                let mut kept = BTreeMap::new();
                while let Some(Key(key)) = map.next_key()? {
                    if M::reads(&key) {
                        let value = match map.next_value()? {
                            Text::Text(text) => text,
                            Text::Number(number) => number.to_string(),
                        };
                        kept.insert(key.into_owned(), value);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Kept(kept, PhantomData))
            }
        }

        source.deserialize_map(Entries(PhantomData))
    }
}
