//! The few fields of `v1.Pod` that matter here. Everything may be absent or null.
//!
//! A list is decoded before every answer, so nothing is copied that isn't kept.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use divvy_contract::names::PREFIX;
use divvy_contract::{ContainerKind, ContainerSpec};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{ContainerState, DecodeError, Phase, PodView, SOURCE};

#[derive(Deserialize)]
pub(super) struct List<'a> {
    #[serde(borrow, deserialize_with = "null_is_empty")]
    pub(super) items: Vec<Pod<'a>>,
}

/// Go writes a list of nothing as null. A list that isn't there at all is an error.
fn null_is_empty<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Deserialize)]
pub(super) struct Pod<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    spec: Spec<'a>,
    #[serde(borrow, default)]
    status: Status<'a>,
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
    init_container_statuses: Option<Vec<ContainerStatus<'a>>>,
    #[serde(borrow)]
    container_statuses: Option<Vec<ContainerStatus<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    state: Option<State>,
    last_state: Option<State>,
    restart_count: Option<u32>,
}

#[derive(Deserialize)]
struct State {
    running: Option<Present>,
    terminated: Option<Present>,
}

/// An object of which only the presence counts.
#[derive(Deserialize)]
struct Present {}

/// A map of texts without the entries that nobody here reads: a pod's last applied configuration is as long as the pod.
struct Kept<M>(BTreeMap<String, String>, PhantomData<M>);

/// Which entries of a map are read.
trait Reads {
    fn reads(key: &str) -> bool;
}

struct Annotations;
struct Limits;

/// A key or a quantity. Quantities are strings on the wire; bare numbers are taken as well.
#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Number(serde_json::Number),
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

// === impl Kept ===

impl Reads for Annotations {
    fn reads(key: &str) -> bool {
        key.starts_with(PREFIX) || key == SOURCE
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
                            Quantity::Text(text) => text.into_owned(),
                            Quantity::Number(number) => number.to_string(),
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

impl TryFrom<Pod<'_>> for PodView {
    type Error = DecodeError;

    fn try_from(pod: Pod<'_>) -> Result<Self, DecodeError> {
        let Pod { metadata, spec, status } = pod;
        let namespace = metadata.namespace.unwrap_or_default().into_owned();
        let name = metadata.name.unwrap_or_default().into_owned();
        let Some(uid) = metadata.uid.filter(|uid| !uid.is_empty()) else {
            return Err(DecodeError::NoUid { namespace, name });
        };
        let init = spec.init_containers.unwrap_or_default().into_iter().enumerate().map(|(index, container)| {
            let sidecar = container.restart_policy.as_deref() == Some("Always");
            let kind = if sidecar { ContainerKind::Sidecar } else { ContainerKind::Init };
            container_spec(container, kind, index)
        });
        let apps = spec.containers.unwrap_or_default().into_iter().enumerate();
        let apps = apps.map(|(index, container)| container_spec(container, ContainerKind::App, index));
        let statuses = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
        Ok(Self {
            uid: uid.into_owned(),
            namespace,
            name,
            annotations: metadata.annotations.map(|kept| kept.0).unwrap_or_default(),
            containers: init.chain(apps).collect(),
            phase: Phase::from(status.phase.as_deref().unwrap_or_default()),
            states: statuses.map(|status| (status.name.to_string(), ContainerState::from(&status))).collect(),
        })
    }
}

fn container_spec(container: Container<'_>, kind: ContainerKind, index: usize) -> ContainerSpec {
    let limits = container.resources.and_then(|resources| resources.limits).map(|kept| kept.0).unwrap_or_default();
    ContainerSpec { name: container.name.into_owned(), kind, index, limits }
}

impl From<&str> for Phase {
    fn from(text: &str) -> Self {
        match text {
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            // "Unknown" is written by node controllers, never by the kubelet.
            _ => Self::Pending,
        }
    }
}

impl From<&ContainerStatus<'_>> for ContainerState {
    fn from(status: &ContainerStatus<'_>) -> Self {
        let has = |state: &Option<State>, test: fn(&State) -> bool| state.as_ref().is_some_and(test);
        if has(&status.state, |state| state.running.is_some()) {
            Self::Running
        } else if has(&status.state, |state| state.terminated.is_some()) {
            Self::Terminated
        } else {
            let ended_once = has(&status.last_state, |state| state.terminated.is_some() || state.running.is_some());
            Self::Waiting { started_before: ended_once || status.restart_count.unwrap_or(0) > 0 }
        }
    }
}
