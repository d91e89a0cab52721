//! The part of a pod that decides its GPUs.

mod wire;

use std::collections::BTreeMap;

use divvy_api::ContainerSpec;

/// The few fields of `v1.Pod` that are read here. Decoded from the API's JSON; whatever may be absent or null may be so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    /// `metadata.uid`, never reused.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Node that it is bound to.
    pub node: Option<String>,
    /// Node where pods are being evicted for it (`status.nominatedNodeName`).
    pub nominated: Option<String>,
    /// `spec.priority`; 0 if it has none.
    pub priority: i32,
    /// Succeeded or Failed.
    pub ended: bool,
    /// CPU request in thousandths of a core, as the scheduler adds it up.
    pub cpu_milli: u32,
    /// Annotations with Divvy's prefix.
    pub annotations: BTreeMap<String, String>,
    /// Containers in admission order: init containers as listed, then app containers. Only extended resources of their limits
    /// are kept.
    pub containers: Vec<ContainerSpec>,
}

/// A pod as lists and watches of the API server bring it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedPod {
    /// The pod.
    pub pod: PodView,
    /// `metadata.resourceVersion`, from which a watch goes on.
    pub resource_version: Option<String>,
}

#[cfg(test)]
mod tests;
