//! `PodGroup`s: pods that are scheduled together.

use std::time::Duration;

/// Label by which a pod names the `PodGroup` of the coscheduling plugin (scheduler-plugins,
/// `apis/scheduling/v1alpha1: PodGroupLabel`).
pub const LABEL: &str = "scheduling.x-k8s.io/pod-group";

/// A `PodGroup`, as its pods name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodGroup {
    /// Whose it is.
    pub api: PodGroupApi,
    /// Namespace of the group and of its pods.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// API group of a `PodGroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodGroupApi {
    /// `scheduling.k8s.io`, Kubernetes' own (KEP-4671). Its pods name it in `spec.schedulingGroup.podGroupName`.
    Kubernetes,
    /// `scheduling.x-k8s.io`, of the coscheduling plugin. Its pods name it in a [label](LABEL).
    Coscheduling,
}

/// The part of a `PodGroup` that decides for how many pods GPUs are held, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodGroupSpec {
    /// Pods of which none starts before the others can; 1 where each may start alone.
    pub min: usize,
    /// How long the scheduler lets pods wait for the others, at most.
    pub wait: Duration,
}

// === impl PodGroupSpec ===

impl PodGroupSpec {
    /// How long GPUs are held where the group doesn't say: as long as the coscheduling plugin waits
    /// (`apis/config/v1: DefaultPermitWaitingTimeSeconds`).
    pub const WAIT: Duration = Duration::from_secs(60);
}
