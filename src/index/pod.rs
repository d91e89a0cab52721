//! What of a pod decides its cards.

mod wire;

use std::collections::BTreeMap;

use divvy_api::ContainerSpec;

/// The few fields of `v1.Pod` that are read here. Decoded from the API's JSON; whatever may be absent or null may be so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    /// Never used again, unlike the name.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Where it is bound.
    pub node: Option<String>,
    /// Where pods are being evicted for it (`status.nominatedNodeName`).
    pub nominated: Option<String>,
    /// `spec.priority`; 0 if it has none.
    pub priority: i32,
    /// Succeeded or Failed.
    pub ended: bool,
    /// Thousandths of a CPU core that it requests, as the scheduler adds them up.
    pub cpu_milli: u32,
    /// Those with Divvy's prefix.
    pub annotations: BTreeMap<String, String>,
    /// In admission order: init containers as listed, then app containers. Of their limits, extended resources alone.
    pub containers: Vec<ContainerSpec>,
}

/// A pod as lists and watches of the API server bring it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedPod {
    /// What is read of it.
    pub pod: PodView,
    /// `metadata.resourceVersion`, from which a watch goes on.
    pub resource_version: Option<String>,
}

#[cfg(test)]
mod tests;
