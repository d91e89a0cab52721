//! Fields of `v1.Pod` that the daemon needs. Everything may be absent or null.
//!
//! A list is decoded before every answer, so nothing is copied that isn't kept.

use std::borrow::Cow;

use divvy_api::names::PREFIX;
use divvy_api::pod::wire::{Container, FilteredMap, KeyFilter, containers};
use divvy_node_core::pod::{self, CONFIG_SOURCE, ContainerState, FIRST_SEEN, Phase};
use serde::Deserialize;

use super::DecodeError;

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
    annotations: Option<FilteredMap<Annotations>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    init_containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
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

/// Annotations that are read, of a pod.
struct Annotations;

// === impl Annotations ===

impl KeyFilter for Annotations {
    fn wants(key: &str) -> bool {
        key.starts_with(PREFIX) || key == CONFIG_SOURCE || key == FIRST_SEEN || divvy_systems::names_gpus(key)
    }
}

impl TryFrom<Pod<'_>> for pod::Pod {
    type Error = DecodeError;

    fn try_from(pod: Pod<'_>) -> Result<Self, DecodeError> {
        let Pod { metadata, spec, status } = pod;
        let namespace = metadata.namespace.unwrap_or_default().into_owned();
        let name = metadata.name.unwrap_or_default().into_owned();
        let Some(uid) = metadata.uid.filter(|uid| !uid.is_empty()) else {
            return Err(DecodeError::NoUid { namespace, name });
        };
        let statuses = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
        Ok(Self {
            uid: uid.into_owned(),
            namespace,
            name,
            annotations: metadata.annotations.map(FilteredMap::entries).unwrap_or_default(),
            containers: containers(spec.init_containers, spec.containers),
            phase: phase(status.phase.as_deref().unwrap_or_default()),
            states: statuses.map(|status| (status.name.to_string(), ContainerState::from(&status))).collect(),
        })
    }
}

fn phase(text: &str) -> Phase {
    match text {
        "Running" => Phase::Running,
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        // "Unknown" is written by node controllers, never by the kubelet.
        _ => Phase::Pending,
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
