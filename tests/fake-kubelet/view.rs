//! What a test or a benchmark may look at.

use std::collections::BTreeMap;
use std::time::Instant;

use divvy_api::ContainerKind;
use divvy_proto::deviceplugin as dp;

use super::core::State;
use super::devices::{Health, Held, Ids};
use super::pods::{Admission, Container, ContainerState, Phase, Pod, Refusal};
use super::record::{Record, Registered};

/// A kubelet at one instant.
#[derive(Clone, Debug)]
pub struct KubeletView {
    /// By UID.
    pub pods: BTreeMap<String, PodView>,
    /// Healthy IDs, by resource; empty while the plugin is away.
    pub healthy: BTreeMap<String, Ids>,
    /// All IDs of the plugin's last list, by resource; empty between the kubelet's start and the first list.
    pub listed: BTreeMap<String, Ids>,
    /// Extended resources that were set with `set_allocatable`, or zeroed by the kubelet since.
    pub allocatable: BTreeMap<String, u64>,
    /// Registrations that came to their first list.
    pub registrations: Vec<Registered>,
    /// Questions for `/pods` so far, counted as they come in.
    pub pod_lists: u64,
    /// Plugins that asked to be registered and didn't answer.
    pub unanswered: usize,
    /// When kubelet.sock appeared, once a start.
    pub boots: Vec<Instant>,
}

/// A pod at one instant.
#[derive(Clone, Debug)]
pub struct PodView {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Whether `/pods` shows it.
    pub listed: bool,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// `status.phase`.
    pub phase: Phase,
    /// Why it was rejected or evicted.
    pub failure: Option<Refusal>,
    /// What came of its last admission; `None` before its turn.
    pub admission: Option<Admission>,
    /// In admission order.
    pub containers: Vec<ContainerView>,
}

/// A container at one instant.
#[derive(Clone, Debug)]
pub struct ContainerView {
    /// Name of the container.
    pub name: String,
    /// What it is to its pod.
    pub kind: ContainerKind,
    /// What it does.
    pub state: ContainerState,
    /// Starts so far.
    pub starts: u32,
    /// IDs that the device manager holds for it, by resource.
    pub devices: BTreeMap<String, Ids>,
    /// What it was really given at its last start: the merged answers of all its resources.
    pub given: Option<dp::ContainerAllocateResponse>,
}

// === impl KubeletView ===

impl KubeletView {
    pub(crate) fn of(state: &State) -> Self {
        let pods = state.pods.iter().map(|pod| (pod.uid.clone(), PodView::of(pod, &state.devices.held)));
        let healthy = state.devices.known.iter().map(|(resource, health)| (resource.clone(), health.healthy.clone()));
        let all = |health: &Health| &health.healthy | &health.unhealthy;
        let listed = state.devices.known.iter().map(|(resource, health)| (resource.clone(), all(health)));
        let Record { registrations, pod_lists, unanswered, boots, calls: _, gone: _ } = &state.record;
        let (registrations, pod_lists, unanswered) = (registrations.clone(), *pod_lists, *unanswered);
        let (allocatable, boots) = (state.allocatable.clone(), boots.clone());
        let (pods, healthy, listed) = (pods.collect(), healthy.collect(), listed.collect());
        Self { pods, healthy, listed, allocatable, registrations, pod_lists, unanswered, boots }
    }
}

// === impl PodView ===

impl PodView {
    fn of(pod: &Pod, held: &Held) -> Self {
        let held = held.get(&pod.uid);
        let grants = |name: &str| held.and_then(|held| held.get(name)).into_iter().flatten();
        let ids = |name: &str| grants(name).map(|(resource, grant)| (resource.clone(), grant.ids.clone())).collect();
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            listed: pod.listed,
            deleting: pod.deleted.is_some(),
            phase: pod.phase(),
            failure: pod.failure.clone(),
            admission: pod.outcome.borrow().clone(),
            containers: pod.containers.iter().map(|c| ContainerView::of(c, ids(&c.spec.name))).collect(),
        }
    }

    /// The container of this name.
    pub fn container(&self, name: &str) -> Option<&ContainerView> {
        self.containers.iter().find(|container| container.name == name)
    }
}

// === impl ContainerView ===

impl ContainerView {
    fn of(container: &Container, devices: BTreeMap<String, Ids>) -> Self {
        Self {
            name: container.spec.name.clone(),
            kind: container.spec.kind,
            state: container.state.clone(),
            starts: container.starts,
            devices,
            given: container.given.clone(),
        }
    }
}
