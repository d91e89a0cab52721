//! The kubelet's own pod list, reduced to what the daemon decides by.

use std::collections::BTreeMap;
use std::fmt;

use divvy_contract::{ContainerKind, ContainerSpec};

use crate::ledger::PodRef;

/// A pod as the kubelet lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// Containers in admission order: init containers as listed, then app containers.
    pub containers: Vec<ContainerSpec>,
    /// `status.phase`.
    pub phase: Phase,
    /// What the kubelet says of each container, by name; absent while it says nothing.
    pub states: BTreeMap<String, ContainerState>,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have started, or no phase is written yet.
    #[default]
    Pending,
    /// Bound, and at least one container started.
    Running,
    /// All containers ended well.
    Succeeded,
    /// Refused at admission, or a container ended badly for good.
    Failed,
}

/// A container's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Not started, or between two starts; `restarts` tells which.
    Waiting {
        /// It has run before.
        started_before: bool,
    },
    /// Running.
    Running,
    /// Ended.
    Terminated,
}

// === impl PodView ===

impl PodView {
    /// Whether any container has ever started: such a pod is past its admission.
    pub fn has_started(&self) -> bool {
        let started = |state: &ContainerState| !matches!(state, ContainerState::Waiting { started_before: false });
        self.phase == Phase::Running || self.states.values().any(started)
    }

    /// Whether it comes from the node's own manifests, not from the API server (`kubetypes.ConfigSourceAnnotationKey`).
    pub fn is_static(&self) -> bool {
        let source = self.annotations.get("kubernetes.io/config.source");
        source.is_some_and(|source| source == "file" || source == "http")
    }

    /// How the books name it.
    pub fn reference(&self) -> PodRef {
        PodRef { uid: self.uid.clone(), namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// Whether the pod's shares have ended: Failed or Succeeded with all containers terminated (or never started).
    pub fn has_ended(&self) -> bool {
        let live = |state: &ContainerState| *state == ContainerState::Running;
        matches!(self.phase, Phase::Failed | Phase::Succeeded) && !self.states.values().any(live)
    }
}

impl fmt::Display for PodView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Reads a `v1.PodList` as the kubelet's `/pods` serves it (JSON only: protobuf is answered 406).
///
/// Fields that aren't needed are passed over; a list cut short, or a pod without UID, is an error.
pub fn decode(json: &[u8]) -> Result<Vec<PodView>, DecodeError> {
    let list: wire::PodList<'_> = serde_json::from_slice(json)?;
    list.items.ok_or(DecodeError::NotAList)?.into_iter().map(PodView::try_from).collect()
}

/// A pod list that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not the JSON of a pod list, or cut short.
    #[error("not a pod list: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON without `items`.
    #[error("not a pod list: field \"items\" is missing")]
    NotAList,
    /// Without a UID a pod can't be told from its namesake.
    #[error("pod {namespace}/{name} has no metadata.uid")]
    NoUid {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The few fields of `v1.Pod` that matter here. Everything may be absent or null.
mod wire {
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer};

    #[derive(Deserialize)]
    pub(super) struct PodList<'a> {
        #[serde(borrow)]
        pub(super) items: Option<Vec<Pod<'a>>>,
    }

    #[derive(Deserialize)]
    pub(super) struct Pod<'a> {
        #[serde(borrow, default)]
        pub(super) metadata: Metadata<'a>,
        #[serde(borrow, default)]
        pub(super) spec: Spec<'a>,
        #[serde(borrow, default)]
        pub(super) status: Status<'a>,
    }

    #[derive(Default, Deserialize)]
    pub(super) struct Metadata<'a> {
        #[serde(borrow)]
        pub(super) uid: Option<Cow<'a, str>>,
        #[serde(borrow)]
        pub(super) namespace: Option<Cow<'a, str>>,
        #[serde(borrow)]
        pub(super) name: Option<Cow<'a, str>>,
        pub(super) annotations: Option<BTreeMap<String, String>>,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Spec<'a> {
        #[serde(borrow)]
        pub(super) init_containers: Option<Vec<Container<'a>>>,
        #[serde(borrow)]
        pub(super) containers: Option<Vec<Container<'a>>>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Container<'a> {
        #[serde(borrow)]
        pub(super) name: Cow<'a, str>,
        #[serde(borrow)]
        pub(super) restart_policy: Option<Cow<'a, str>>,
        pub(super) resources: Option<Resources>,
    }

    #[derive(Deserialize)]
    pub(super) struct Resources {
        pub(super) limits: Option<BTreeMap<String, Quantity>>,
    }

    /// A quantity is a string on the wire; bare numbers are taken as well.
    pub(super) struct Quantity(pub(super) String);

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Status<'a> {
        #[serde(borrow)]
        pub(super) phase: Option<Cow<'a, str>>,
        #[serde(borrow)]
        pub(super) init_container_statuses: Option<Vec<ContainerStatus<'a>>>,
        #[serde(borrow)]
        pub(super) container_statuses: Option<Vec<ContainerStatus<'a>>>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct ContainerStatus<'a> {
        #[serde(borrow)]
        pub(super) name: Cow<'a, str>,
        pub(super) state: Option<State>,
        pub(super) last_state: Option<State>,
        pub(super) restart_count: Option<u32>,
    }

    #[derive(Deserialize)]
    pub(super) struct State {
        pub(super) running: Option<Present>,
        pub(super) terminated: Option<Present>,
    }

    /// An object of which only the presence counts.
    #[derive(Deserialize)]
    pub(super) struct Present {}

    impl<'de> Deserialize<'de> for Quantity {
        fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
            #[derive(Deserialize)]
            #[serde(untagged)]
            enum Either {
                Text(String),
                Number(serde_json::Number),
            }
            Ok(Self(match Either::deserialize(source)? {
                Either::Text(text) => text,
                Either::Number(number) => number.to_string(),
            }))
        }
    }
}

impl TryFrom<wire::Pod<'_>> for PodView {
    type Error = DecodeError;

    fn try_from(pod: wire::Pod<'_>) -> Result<Self, DecodeError> {
        let wire::Pod { metadata, spec, status } = pod;
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
            annotations: metadata.annotations.unwrap_or_default(),
            containers: init.chain(apps).collect(),
            phase: Phase::from(status.phase.as_deref().unwrap_or_default()),
            states: statuses.map(|status| (status.name.to_string(), ContainerState::from(&status))).collect(),
        })
    }
}

fn container_spec(container: wire::Container<'_>, kind: ContainerKind, index: usize) -> ContainerSpec {
    let limits = container.resources.and_then(|resources| resources.limits).unwrap_or_default();
    let limits = limits.into_iter().map(|(name, quantity)| (name, quantity.0)).collect();
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

impl From<&wire::ContainerStatus<'_>> for ContainerState {
    fn from(status: &wire::ContainerStatus<'_>) -> Self {
        let has = |state: &Option<wire::State>, test: fn(&wire::State) -> bool| state.as_ref().is_some_and(test);
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[
      {"metadata":{"name":"train","namespace":"ml","uid":"u1","annotations":{"divvy.dev/numa":"strict"},"managedFields":[{"x":1}]},
       "spec":{"initContainers":[
           {"name":"fetch","resources":{}},
           {"name":"proxy","restartPolicy":"Always","resources":{"limits":{"nvidia.com/gpu":"1"}}}],
         "containers":[{"name":"main","image":"x","resources":{"limits":{"nvidia.com/gpu":2,"cpu":"1"},"requests":null}}]},
       "status":{"phase":"Pending","conditions":[],
         "initContainerStatuses":[{"name":"fetch","restartCount":0,"state":{"terminated":{"exitCode":0}},"lastState":{}}],
         "containerStatuses":[{"name":"main","restartCount":3,"state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{}}}]}},
      {"metadata":{"name":"new","namespace":"ml","uid":"u2","annotations":null},"spec":{"containers":[{"name":"c"}]},"status":{}}]}"#;

    #[test]
    fn a_kubelets_list_is_reduced_to_what_matters() {
        let pods = decode(LIST.as_bytes()).expect("a list");
        let train = &pods[0];
        assert_eq!((train.uid.as_str(), train.namespace.as_str(), train.name.as_str()), ("u1", "ml", "train"));
        let order: Vec<_> = train.containers.iter().map(|c| (c.name.as_str(), c.kind, c.index)).collect();
        let (init, sidecar, app) = (ContainerKind::Init, ContainerKind::Sidecar, ContainerKind::App);
        assert_eq!(order, [("fetch", init, 0), ("proxy", sidecar, 1), ("main", app, 0)]);
        assert_eq!(train.containers[2].limits["nvidia.com/gpu"], "2", "numbers are taken like strings");
        assert_eq!(train.states["main"], ContainerState::Waiting { started_before: true });
        assert!(train.has_started() && !train.has_ended());
        assert!(!pods[1].has_started(), "a pod under admission has no statuses");
    }

    #[test]
    fn a_list_cut_anywhere_is_an_error() {
        for end in 0..LIST.len() {
            assert!(decode(&LIST.as_bytes()[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn texts_that_are_no_list() {
        let said = |text: &str| decode(text.as_bytes()).expect_err("refused").to_string();
        assert_eq!(said("{}"), "not a pod list: field \"items\" is missing");
        assert!(said("Unauthorized").starts_with("not a pod list: expected value at line 1"));
        let nameless = r#"{"items":[{"metadata":{"name":"a","namespace":"b"}}]}"#;
        assert_eq!(said(nameless), "pod b/a has no metadata.uid");
    }

    #[test]
    fn a_share_ends_with_the_containers_not_with_the_phase() {
        let text = LIST.replace("Pending", "Failed");
        let mut pod = decode(text.as_bytes()).expect("a list").swap_remove(0);
        assert!(pod.has_ended(), "nothing runs");
        pod.states.insert("proxy".into(), ContainerState::Running);
        assert!(!pod.has_ended(), "Failed, but a container is still up");
    }
}
