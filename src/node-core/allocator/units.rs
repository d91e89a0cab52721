//! Units of memory and compute, which the kubelet counts and hands out by itself.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem;
use std::sync::Arc;

use divvy_api::limits::asks_for_cards;
use divvy_api::{ContainerSpec, ResourceName};

use super::{Allocator, Refusal};
use crate::identity;
use crate::ledger::Allocations;
use crate::pod::DeviceRecord;
use crate::pod::Pod;

/// Units that the kubelet has on record. They have to stay healthy: when a kubelet has restarted it refuses a running pod
/// of which an ended init container has one that isn't.
#[derive(Debug, Default)]
pub(super) struct GivenUnits {
    /// By the pod's UID; by several where it wasn't known which of them asked.
    pods: BTreeMap<String, BTreeSet<String>>,
    /// The kubelet's records from before our first answer, until its pods are known.
    records: Vec<DeviceRecord>,
}

// === impl GivenUnits ===

impl GivenUnits {
    /// Keeps the kubelet's records of units for the next list of pods.
    pub(super) fn compare_with(&mut self, records: Vec<DeviceRecord>) {
        self.records = records;
    }

    /// Drops those of pods that are over.
    pub(super) fn follow(&mut self, pods: &[Arc<Pod>], allocations: &Allocations) {
        for DeviceRecord { namespace, pod, devices, .. } in mem::take(&mut self.records) {
            let named = pods.iter().filter(|listed| listed.namespace == namespace && listed.name == pod);
            for listed in named {
                self.pods.entry(listed.uid.clone()).or_default().extend(devices.iter().cloned());
            }
        }
        let live: HashSet<&str> = pods.iter().filter(|pod| !pod.has_ended()).map(|pod| pod.uid.as_str()).collect();
        self.pods.retain(|uid, _| live.contains(uid.as_str()) || allocations.pod(uid).is_some());
    }
}

// === impl Allocator ===

impl Allocator {
    /// Units that the kubelet has given to pods.
    pub fn units_given(&self) -> BTreeSet<&str> {
        self.units.pods.values().flatten().map(String::as_str).collect()
    }

    /// `GetPreferredAllocation` for units: those that must be among them, then those of the cards of the pod under
    /// admission, then any.
    pub fn prefer_units(&self, available: Vec<String>, required: Vec<String>, size: usize) -> Vec<String> {
        let cards = self.admission.as_ref().map(|admission| admission.cards()).unwrap_or_default();
        let is_near =
            |id: &String| id.split_once("::").is_some_and(|(card, _)| cards.iter().any(|own| own.as_str() == card));
        let (near, far): (Vec<_>, Vec<_>) =
            available.into_iter().filter(|id| !required.contains(id)).partition(is_near);
        required.into_iter().chain(near).chain(far).take(size).collect()
    }

    /// `Allocate` for units: refused for a container that asks for no card, which would run without one.
    ///
    /// Such a pod is refused at its first call, so one that may be under admission is: no other was ever let in.
    pub fn allocate_units(
        &mut self,
        resource: &ResourceName,
        pods: &[Arc<Pod>],
        ids: &[String],
    ) -> Result<(), Refusal> {
        let names = &self.settings.names;
        let question = self.question(resource, ids.len());
        let asking = |pod: &Pod, with_cards: bool| {
            let asks =
                |container: &&ContainerSpec| question.fits(container) && asks_for_cards(names, container) == with_cards;
            pod.containers.iter().find(asks).map(|container| container.name.clone())
        };
        let mut may_come = pods.iter().filter(|pod| self.history.could_be_under_admission(pod));
        let alone = may_come.find_map(|pod| Some((pod, asking(pod, false)?)));
        if let Some((pod, container)) = alone {
            let container = format!("container \"{container}\" of pod {pod}");
            let refusal = Refusal::UnitsAlone { container, resource: resource.clone(), count: names.count.clone() };
            return self.remember_refusal(&pod.uid, Err(refusal));
        }
        let meant: Vec<&Arc<Pod>> = pods.iter().filter(|pod| !pod.has_ended() && asking(pod, true).is_some()).collect();
        if meant.is_empty() {
            return Err(question.nobody().into());
        }
        // Asked before its slots the pod still lacks those; asked after them it is the one under admission.
        let lacking = identity::waiting(pods, self.ledger.allocations(), &self.history, names);
        let mut holders: Vec<String> = lacking.map(|pod| pod.uid.clone()).collect();
        if holders.is_empty() {
            holders.extend(self.admission.as_ref().map(|admission| admission.pod.uid.clone()));
        }
        if holders.is_empty() {
            holders.extend(meant.iter().map(|pod| pod.uid.clone()));
        }
        for uid in holders {
            self.units.pods.entry(uid).or_default().extend(ids.iter().cloned());
        }
        Ok(())
    }
}
