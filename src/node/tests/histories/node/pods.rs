//! Pods: how they come, live and end.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::names::annotation::OVERSUBSCRIBE;
use divvy_api::{ContainerKind, ContainerSpec};
use divvy_node_core::pod::{ContainerState, Phase, Pod};
use divvy_proto::deviceplugin::ContainerAllocateResponse;
use divvy_testkit::pods::GPU;
use fake_kubelet::devices::Demand;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{Death, Node, slots};
use crate::seen;
use crate::shapes::{INSTANCES, Shape};

/// A pod, as the kubelet and the runtime know it.
pub(crate) struct ListedPod {
    /// As the kubelet lists it.
    pub(crate) view: Pod,
    /// The kubelet that runs now has listed it.
    pub(super) listed: bool,
    fate: Fate,
    pub(crate) bad: bool,
    /// Answers that containers run with, or would be started with; by container.
    pub(crate) given: BTreeMap<String, ContainerAllocateResponse>,
    /// Containers that the kubelet's last start found running.
    pub(super) found_running: BTreeSet<String>,
}

/// What the kubelet has decided.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Lives,
    /// Rejected without a call; the list doesn't say so yet.
    Rejected,
    Failed,
}

// === impl Node ===

impl Node {
    pub(crate) fn arrive(
        &mut self,
        shape: Shape,
        dies: Option<(usize, Death)>,
        twice: bool,
    ) -> Result<(), TestCaseError> {
        self.come(shape);
        self.admit(self.pods.len() - 1, dies, twice)
    }

    fn come(&mut self, shape: Shape) -> &mut ListedPod {
        self.born += 1;
        let (uid, name) = (format!("u{}", self.born), format!("p{}", self.born));
        let Shape { containers, annotations, bad } = shape;
        let bad = bad || (annotations.contains_key(OVERSUBSCRIBE) && self.disk.oversubscription.is_none());
        let (phase, states) = (Phase::Pending, BTreeMap::new());
        let view = Pod { uid, namespace: "default".to_owned(), name, annotations, containers, phase, states };
        let (given, found_running) = (BTreeMap::new(), BTreeSet::new());
        let (listed, fate) = (true, Fate::Lives);
        self.pods.push(ListedPod { view, listed, fate, bad, given, found_running });
        self.pods.last_mut().unwrap()
    }

    /// A pod comes that an earlier admit handler rejects.
    pub(crate) fn reject(&mut self, shape: Shape) {
        self.come(shape).fate = Fate::Rejected;
    }

    /// What the kubelet wrote of rejected pods has come back from the API server.
    pub(crate) fn hear(&mut self) {
        for pod in self.pods.iter_mut().filter(|pod| pod.is_rejected()) {
            pod.fail();
        }
    }

    pub(crate) fn advance(&mut self, pod: Index) -> Result<(), TestCaseError> {
        let Some(at) = self.pick(pod) else { return Ok(()) };
        let pod = &self.pods[at];
        if pod.fate == Fate::Failed || pod.view.states.is_empty() {
            return Ok(());
        }
        let containers = pod.view.containers.clone();
        for ContainerSpec { name, kind, .. } in containers {
            match (kind, self.pods[at].view.states[&name]) {
                (_, ContainerState::Waiting { .. }) => return self.start(at, &name),
                (ContainerKind::Init, ContainerState::Running) => {
                    self.pods[at].set(&name, ContainerState::Terminated);
                    return Ok(());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// `startContainer`: PreStartContainer, then the cached answer.
    fn start(&mut self, at: usize, name: &str) -> Result<(), TestCaseError> {
        let pod = &self.pods[at];
        let uid = &pod.view.uid;
        if count(&pod.view, name) > 0 {
            // A kubelet that has lost its records can't start the container any more.
            let Some(grant) = self.devices.grant(uid, name, resource(&pod.view, name)) else { return Ok(()) };
            let answer = grant.answer.clone();
            let written = self.daemon().allocator().pre_start(&slots(&grant.ids));
            prop_assert!(written.is_ok(), "{uid} {name}: PreStartContainer: {written:?}");
            self.pods[at].given.insert(name.to_owned(), answer);
            seen("started");
        }
        self.pods[at].set(name, ContainerState::Running);
        Ok(())
    }

    pub(crate) fn restart_container(&mut self, pod: Index) {
        let Some(at) = self.pick(pod) else { return };
        let running = self.pods[at].running();
        if let Some(name) = running.into_iter().next() {
            self.pods[at].set(&name, ContainerState::Waiting { started_before: true });
        }
    }

    pub(crate) fn finish(&mut self, pod: Index) {
        let Some(at) = self.pick(pod) else { return };
        if !self.pods[at].view.states.is_empty() {
            self.pods[at].end_all();
        }
    }

    pub(crate) fn evict(&mut self, pod: Index) {
        let Some(at) = self.pick(pod) else { return };
        self.pods[at].fail();
    }

    pub(crate) fn stop(&mut self, pod: Index) {
        let Some(at) = self.pick(pod) else { return };
        if self.pods[at].fate == Fate::Failed {
            self.pods[at].end_all();
        }
    }

    pub(crate) fn delete(&mut self, pod: Index) {
        if let Some(at) = self.pick(pod) {
            self.pods.remove(at);
        }
    }

    pub(crate) fn delete_all(&mut self) {
        self.pods.clear();
    }

    fn pick(&self, pod: Index) -> Option<usize> {
        (!self.pods.is_empty()).then(|| pod.index(self.pods.len()))
    }
}

// === impl ListedPod ===

impl ListedPod {
    /// Whether the kubelet has rejected it, and its list doesn't say so.
    pub(super) fn is_rejected(&self) -> bool {
        self.fate == Fate::Rejected
    }

    pub(crate) fn running(&self) -> Vec<String> {
        let running = self.view.states.iter().filter(|(_, state)| **state == ContainerState::Running);
        running.map(|(name, _)| name.clone()).collect()
    }

    /// Whether its first container with devices asks for as many.
    pub(super) fn waits_for(&self, demand: Demand<'_>) -> bool {
        let counts =
            self.view.containers.iter().map(|spec| (resource(&self.view, &spec.name), count(&self.view, &spec.name)));
        counts.into_iter().find(|(_, count)| *count > 0) == Some((demand.resource, demand.count))
    }

    pub(super) fn admitted(&mut self) {
        for container in &self.view.containers {
            let waiting = ContainerState::Waiting { started_before: false };
            self.view.states.entry(container.name.clone()).or_insert(waiting);
        }
    }

    pub(super) fn fail(&mut self) {
        self.fate = Fate::Failed;
        self.view.phase = Phase::Failed;
    }

    fn end_all(&mut self) {
        for name in self.view.states.keys().cloned().collect::<Vec<_>>() {
            self.set(&name, ContainerState::Terminated);
        }
    }

    fn set(&mut self, name: &str, state: ContainerState) {
        self.view.states.insert(name.to_owned(), state);
        if self.fate == Fate::Failed {
            return;
        }
        let state_of = |container: &ContainerSpec| self.view.states[&container.name];
        let waits = |container: &ContainerSpec| {
            let init = container.kind == ContainerKind::Init && state_of(container) != ContainerState::Terminated;
            init || state_of(container) == ContainerState::Waiting { started_before: false }
        };
        let containers = &self.view.containers;
        self.view.phase = if containers.iter().all(|container| state_of(container) == ContainerState::Terminated) {
            Phase::Succeeded
        } else if containers.iter().any(waits) {
            Phase::Pending
        } else {
            Phase::Running
        };
    }
}

/// The resource that the kubelet asks the daemon for.
pub(crate) fn resource(pod: &Pod, container: &str) -> &'static str {
    let container = pod.containers.iter().find(|spec| spec.name == container).unwrap();
    if container.limits.contains_key(INSTANCES) { INSTANCES } else { GPU }
}

pub(super) fn count(pod: &Pod, container: &str) -> usize {
    let resource = resource(pod, container);
    let container = pod.containers.iter().find(|other| other.name == container).unwrap();
    container.limits.get(resource).map_or(0, |text| text.parse().unwrap())
}
