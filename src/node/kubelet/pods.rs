//! The kubelet's own pod list, reduced to what the daemon decides by.

mod known;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use divvy_api::{ContainerSpec, ResourceName, ResourceNames};

pub use self::known::Known;
use crate::ledger::PodRef;

/// Says where the kubelet has a pod from (`kubetypes.ConfigSourceAnnotationKey`).
const SOURCE: &str = "kubernetes.io/config.source";

/// A pod as the kubelet lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.annotations`, those that are read here.
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

    /// Whether it names amounts of cards but no cards, so that the kubelet asks us for none: a pod that no webhook saw.
    pub fn asks_for_amounts_alone(&self, names: &ResourceNames) -> bool {
        let has = |container: &ContainerSpec, name: &ResourceName| container.limits.contains_key(name.as_str());
        let amounts = [&names.memory, &names.memory_percentage, &names.cores];
        let alone = |container: &ContainerSpec| {
            !container.limits.keys().any(|name| names.counts_cards(name))
                && amounts.into_iter().any(|name| has(container, name))
        };
        self.containers.iter().any(alone)
    }

    /// Whether it comes from the node's own manifests, not from the API server.
    pub fn is_static(&self) -> bool {
        let source = self.annotations.get(SOURCE);
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
pub fn decode(json: &[u8]) -> Result<Vec<Arc<PodView>>, DecodeError> {
    let list: wire::List<'_> = serde_json::from_slice(json)?;
    list.items.into_iter().map(|pod| Ok(Arc::new(pod.try_into()?))).collect()
}

/// A pod list that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not the JSON of a pod list, or cut short.
    #[error("not a pod list: {0}")]
    Json(#[from] serde_json::Error),
    /// Without a UID a pod can't be told from its namesake.
    #[error("pod {namespace}/{name} has no metadata.uid")]
    NoUid {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use divvy_api::ContainerKind;

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
        assert_eq!(decode(br#"{"kind":"PodList","items":null}"#).expect("a list of nothing"), []);
        assert_eq!(said("{}"), "not a pod list: missing field `items` at line 1 column 2");
        assert!(said("Unauthorized").starts_with("not a pod list: expected value at line 1"));
        let nameless = r#"{"items":[{"metadata":{"name":"a","namespace":"b"}}]}"#;
        assert_eq!(said(nameless), "pod b/a has no metadata.uid");
    }

    #[test]
    fn a_share_ends_with_the_containers_not_with_the_phase() {
        let text = LIST.replace("Pending", "Failed");
        let mut pod = decode(text.as_bytes()).expect("a list").swap_remove(0);
        assert!(pod.has_ended(), "nothing runs");
        Arc::make_mut(&mut pod).states.insert("proxy".into(), ContainerState::Running);
        assert!(!pod.has_ended(), "Failed, but a container is still up");
    }
}
