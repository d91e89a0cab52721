//! The admit handler after the device manager: the node's allocatable amounts, checked once more.

use std::collections::BTreeMap;

use divvy_api::pod::{PodSum, peak};
use divvy_api::quantity::{parse_count, parse_memory};

use super::core::State;
use super::pods::{Pod, Refusal};

/// An amount of one resource.
#[derive(Clone, Copy, Debug, Default)]
struct Amount(u64);

// === impl Amount ===

impl PodSum for Amount {
    fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

// === impl State ===

impl State {
    /// Refuses a pod whose amounts don't fit beside those of all other active pods. Resources that the node doesn't
    /// name are nobody's business (`removeMissingExtendedResources`).
    pub(crate) fn fit(&self, uid: &str) -> Result<(), Refusal> {
        let Some(pod) = self.pod(uid) else { return Ok(()) };
        let others = || self.pods.iter().filter(|other| other.uid != uid && other.listed && other.is_active());
        for (resource, capacity) in &self.capacities(pod) {
            let (requested, used) =
                (request(pod, resource), others().map(|other| request(other, resource)).sum::<u64>());
            if requested > capacity.saturating_sub(used) && requested > 0 {
                let amounts = format!("requested: {requested}, used: {used}, capacity: {capacity}");
                let message = format!("Node didn't have enough resource: {resource}, {amounts}");
                return Err(Refusal { reason: format!("OutOf{resource}"), message });
            }
        }
        Ok(())
    }

    /// Collects the allocatable amounts that a pod is checked against: those of the Node, of plugins their healthy devices,
    /// and never less than what is allocated if the pod has devices (`sanitizeNodeAllocatable`).
    fn capacities(&self, pod: &Pod) -> BTreeMap<String, u64> {
        let mut amounts = self.allocatable.clone();
        let listed = self.devices.known.iter().filter(|(_, health)| !health.is_empty());
        amounts.extend(listed.map(|(resource, health)| (resource.clone(), health.healthy.len() as u64)));
        if self.devices.held.contains_key(&pod.uid) {
            for (resource, ids) in self.devices.allocated() {
                let amount = amounts.entry(resource.clone()).or_default();
                *amount = (*amount).max(ids.len() as u64);
            }
        }
        amounts
    }
}

/// What the scheduler counts for a pod.
fn request(pod: &Pod, resource: &str) -> u64 {
    let amount = |text: &String| value(text).unwrap_or_default();
    peak(pod.containers.iter().map(|c| (c.spec.kind, Amount(c.spec.limits.get(resource).map_or(0, amount))))).0
}

/// `Quantity.Value()`: binary suffixes count bytes.
fn value(text: &str) -> Option<u64> {
    parse_count(text).ok().or_else(|| parse_memory(text).ok().map(|memory| memory.as_mib() << 20))
}
