//! Pods of the node, from whichever source they are known.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use divvy_api::{ContainerSpec, ResourceName, ResourceNames};
use serde::{Deserialize, Serialize};

/// Annotation in which the kubelet notes where it has a pod from (`kubetypes.ConfigSourceAnnotationKey`).
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Annotation in which the kubelet notes when it first saw a pod (`kubetypes.ConfigFirstSeenAnnotationKey`), in RFC 3339: it
/// admits the pod, and lists it, once its sync loop has come that far.
pub const FIRST_SEEN: &str = "kubernetes.io/config.seen";

/// Reference to a pod: UID, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    /// `metadata.uid`, which alone decides: names come again.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// A pod as the kubelet lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
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
    /// Container states that the kubelet reports, by name; absent while it reports none.
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
    /// Not started, or between two starts; `started_before` tells which.
    Waiting {
        /// Whether it has run before.
        started_before: bool,
    },
    /// Running.
    Running,
    /// Ended.
    Terminated,
}

/// What the kubelet answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodList {
    /// All pods, the one under admission included.
    pub pods: Vec<Arc<Pod>>,
    /// The connection that it came over. Two lists over one connection come from one kubelet process.
    pub connection: Option<ConnectionId>,
}

/// Number of a connection, which no other connection of this process ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId(pub u64);

/// Devices of one resource, Divvy's or another system's, that the kubelet has on record for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRecord {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name; PodResources knows no UID.
    pub pod: String,
    /// The container's name. Ordinary init containers are never listed.
    pub container: String,
    /// Name of the resource.
    pub resource: String,
    /// Device IDs as listed: slots, or IDs of another plugin that was registered before.
    pub devices: Vec<String>,
}

/// What its cgroup tells of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupState {
    /// Present: processes may run.
    Exists,
    /// Removed: no process runs, and none will.
    Removed,
}

// === impl PodRef ===

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

// === impl Pod ===

impl Pod {
    /// Whether any container has ever started: such a pod is past its admission.
    pub fn has_started(&self) -> bool {
        let started = |state: &ContainerState| !matches!(state, ContainerState::Waiting { started_before: false });
        self.phase == Phase::Running || self.states.values().any(started)
    }

    /// Whether it requests amounts of GPUs but no GPU, so that the kubelet never calls the plugin: a pod that no webhook
    /// reviewed.
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
        let source = self.annotations.get(CONFIG_SOURCE);
        source.is_some_and(|source| source == "file" || source == "http")
    }

    /// Namespace, name and UID.
    pub fn reference(&self) -> PodRef {
        PodRef { uid: self.uid.clone(), namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// Whether it has this pod's name; it may be another one that came later.
    pub fn has_name_of(&self, pod: &PodRef) -> bool {
        (&self.namespace, &self.name) == (&pod.namespace, &pod.name)
    }

    /// Whether the pod's shares have ended: Failed or Succeeded with all containers terminated (or never started).
    pub fn has_ended(&self) -> bool {
        let live = |state: &ContainerState| *state == ContainerState::Running;
        matches!(self.phase, Phase::Failed | Phase::Succeeded) && !self.states.values().any(live)
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
