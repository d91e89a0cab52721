//! Pods of other systems that run on the node: what is known of their devices, and what is shown of them.

use std::collections::HashSet;
use std::sync::Arc;

use divvy_api::{CardId, ContainerSpec, ResourceNames};

use super::Allocator;
use crate::foreign::{self, ForeignDevices};
use crate::ledger::{Origin, PodEntry};
use crate::pod::{DeviceRecord, Pod, PodRef};

/// What is known of the devices of pods of other systems.
#[derive(Debug, Default)]
pub(super) struct ForeignPods {
    /// Devices found so far. Those of pods that have ended stay and mean nothing.
    pub(super) devices: Vec<ForeignDevices>,
    /// Pods, by UID, of which the kubelet has told what they have.
    told: HashSet<String>,
}

/// A live pod that names resources of another system, or that has its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignPod {
    /// The pod.
    pub pod: PodRef,
    /// The resource.
    pub resource: String,
    /// What it holds.
    pub held: ForeignHeld,
}

/// What a pod of another system holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignHeld {
    /// Nothing: no plugin has given it any device.
    Nothing,
    /// The cards that it uses.
    Cards(Vec<CardId>),
    /// All cards of the node: nothing says which of them it uses.
    All,
}

// === impl ForeignPods ===

impl ForeignPods {
    /// Keeps the devices of other systems among these records, for all live pods of their names, and leaves the rest.
    pub(super) fn take(&mut self, names: &ResourceNames, pods: &[Arc<Pod>], records: &mut Vec<DeviceRecord>) {
        for record in records.extract_if(.., |record| foreign::is_foreign(names, record)) {
            let is_named = |pod: &&Arc<Pod>| (&pod.namespace, &pod.name) == (&record.namespace, &record.pod);
            for pod in pods.iter().filter(is_named).filter(|pod| !pod.has_ended()) {
                self.keep(pod, record.clone());
            }
        }
    }

    /// Keeps the devices if the container that they are for requests such: records name pods, and another pod may have had
    /// the name.
    fn keep(&mut self, pod: &Pod, record: DeviceRecord) {
        let requests_it = |container: &ContainerSpec| {
            container.name == record.container && container.limits.contains_key(&record.resource)
        };
        if !pod.containers.iter().any(requests_it) {
            return;
        }
        self.told.insert(pod.uid.clone());
        let devices = ForeignDevices::new(pod, record);
        if !self.devices.contains(&devices) {
            self.devices.push(devices);
        }
    }
}

// === impl Allocator ===

impl Allocator {
    /// Live pods that may have devices of another system, and of which the kubelet hasn't told yet: they came after the start.
    pub fn untold_foreign(&self, pods: &[Arc<Pod>]) -> Vec<PodRef> {
        let is_untold = |pod: &Pod| {
            !self.foreign.told.contains(&pod.uid)
                && !pod.has_ended()
                && self.ledger.allocations().pod(&pod.uid).is_none()
        };
        let may_have =
            |pod: &Pod| foreign::has_drawn_ids(pod) || foreign::resource_of(&self.settings.names, pod).is_some();
        pods.iter().filter(|pod| is_untold(pod) && may_have(pod)).map(|pod| pod.reference()).collect()
    }

    /// Keeps what the kubelet tells of the devices of these pods; answers whether any are another system's. A pod that has
    /// started gets no more of them.
    pub fn tell_foreign(
        &mut self,
        pods: &[Arc<Pod>],
        told: &[PodRef],
        records: Vec<Option<Vec<DeviceRecord>>>,
    ) -> bool {
        let before = self.foreign.devices.len();
        for (told, records) in told.iter().zip(records) {
            let Some(pod) = pods.iter().find(|pod| pod.uid == told.uid) else { continue };
            let foreign = records.into_iter().flatten();
            for record in foreign.filter(|record| foreign::is_foreign(&self.settings.names, record)) {
                self.foreign.keep(pod, record);
            }
            if pod.has_started() {
                self.foreign.told.insert(told.uid.clone());
            }
        }
        self.foreign.devices.len() > before
    }

    /// Pods of other systems among those last listed.
    pub fn foreign_pods(&self) -> Vec<ForeignPod> {
        self.listed().iter().filter(|pod| !pod.has_ended()).filter_map(|pod| self.foreign_pod(pod)).collect()
    }

    /// The pod as one of another system, if it has such devices or requests them.
    fn foreign_pod(&self, pod: &Pod) -> Option<ForeignPod> {
        let devices: Vec<&ForeignDevices> = self.foreign.devices.iter().filter(|known| known.uid == pod.uid).collect();
        let named = foreign::resource_of(&self.settings.names, pod);
        let resource = devices.first().map(|known| known.resource.as_str()).or(named)?.to_owned();
        Some(ForeignPod { pod: pod.reference(), resource, held: self.held_by(pod, &devices) })
    }

    fn held_by(&self, pod: &Pod, devices: &[&ForeignDevices]) -> ForeignHeld {
        if devices.iter().any(|known| known.cards(pod, &self.inventory).is_none()) {
            return ForeignHeld::All;
        }
        let entry = self.ledger.allocations().pod(&pod.uid).into_iter();
        // Also after a kubelet lost its records: the ledger still has what was on them.
        let holdings = entry.flat_map(PodEntry::holdings).filter(|(_, holding)| holding.origin == Origin::Adopted);
        let mut held: Vec<CardId> =
            holdings.flat_map(|(_, holding)| &holding.parts).map(|part| part.card.clone()).collect();
        held.sort();
        held.dedup();
        if held.is_empty() { ForeignHeld::Nothing } else { ForeignHeld::Cards(held) }
    }
}
