//! Reconciliation: changes that bring the ledger in line with the kubelet. Pure; the caller applies them.
//!
//! The kubelet is right about which pods there are and who has which slot; the ledger is right about shares. A pod
//! whose record was lost gets its shares back from the kubelet's device records and its own requests. It is left alone
//! by every placement from then on, even where that means that a card is full twice. A pod of another system holds the
//! cards that it uses alone ([`crate::foreign`]).

mod restore;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use divvy_api::request::Defaults;
use divvy_api::{CardId, ResourceNames, Share, SlotId, Terms};

use super::allocations::{Allocations, Change};
use super::entry::{Nonce, PodEntry};
use crate::foreign::ForeignDevices;
use crate::inventory::Inventory;
use crate::pod::{CgroupState, DeviceRecord, Pod, PodRef};
use restore::{Device, Restore};

/// What was observed of the node's pods.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The ledger's revision before the first of these lists was asked for. Pods allocated to since are left alone: the
    /// lists may be older than they are.
    pub as_of: u64,
    /// The pod list, received whole; after a failed request there is nothing to reconcile with.
    pub pods: &'a [Arc<Pod>],
    /// Whether the list holds every pod that the kubelet runs. A kubelet that has just started lists pods one by one,
    /// as it admits them again: until then, a pod that is missing isn't gone.
    pub is_whole: bool,
    /// Pods, by UID, that this start of the kubelet has listed before: when these are missing they are gone, whether or not
    /// the list is whole.
    pub listed_before: Option<&'a HashSet<String>>,
    /// Cgroups of missing pods, by UID: one that was deleted by force runs on for a while.
    pub cgroups: &'a HashMap<String, CgroupState>,
    /// The kubelet's records of devices, where they are to be compared.
    pub records: Option<&'a [DeviceRecord]>,
    /// Devices of other systems, compared each time: pods' annotations and the node's cards come later than records.
    pub foreign: &'a [ForeignDevices],
}

/// What a lost entry is restored with.
#[derive(Clone, Copy)]
pub struct RestoreContext<'a> {
    /// Resources that requests are written in.
    pub names: &'a ResourceNames,
    /// Amounts that a request may leave out.
    pub defaults: Defaults,
    /// The cards that the node has, and how they are divided.
    pub inventory: &'a Inventory,
    /// What the directories show that a container was started with, if they can still be found, else new ones.
    pub found: &'a dyn Fn(&PodRef, &str) -> FoundContainer,
}

/// A container as its directories show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundContainer {
    /// Name of the directories.
    pub nonce: Nonce,
    /// How its shares are enforced.
    pub terms: Terms,
    /// Shares by its limits.
    pub shares: Vec<(CardId, Share)>,
}

/// Result of a reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// For [`Ledger::apply`](super::Ledger::apply).
    pub changes: Vec<Change>,
    /// What could not be resolved, and why.
    pub notes: Vec<String>,
}

/// A live pod with what the kubelet's records give its containers.
struct Record<'a> {
    pod: &'a Pod,
    containers: BTreeMap<&'a str, Vec<Device>>,
}

/// Changes that bring the ledger in line with what the kubelet reports.
///
/// A share ends when its pod is gone from the list and runs no longer, or is Failed or Succeeded with all containers
/// terminated; not before. An empty list by itself ends nothing that it hasn't shown before: a kubelet that runs this
/// daemon runs at least one pod.
/// Pods without a record of either side hold nothing.
pub fn reconcile(allocations: &Allocations, observed: &Observed<'_>, context: &RestoreContext<'_>) -> Reconciled {
    let mut out = Reconciled { changes: releases(allocations, observed), notes: Vec::new() };
    if observed.records.is_none() {
        out.changes.extend(sized(allocations, observed, context));
    }
    if observed.records.is_none() && observed.foreign.is_empty() {
        return out;
    }
    let mut records = records(observed, context.inventory, &mut out.notes);
    records.retain(|record| untouched(allocations, observed.as_of, &record.pod.uid));
    let ended: BTreeSet<&str> = out.changes.iter().map(Change::uid).collect();
    let owners = owners(allocations, observed.as_of, &ended, &records);
    let holds: Vec<Change> =
        records.iter().filter_map(|record| hold(allocations, record, &owners, context, &mut out.notes)).collect();
    out.changes.extend(holds);
    out
}

/// Shares of cards that weren't known when their pods were restored, and are now.
fn sized(allocations: &Allocations, observed: &Observed<'_>, context: &RestoreContext<'_>) -> Vec<Change> {
    observed.pods.iter().filter_map(|pod| sized_pod(allocations, pod, context)).collect()
}

fn sized_pod(allocations: &Allocations, pod: &Pod, context: &RestoreContext<'_>) -> Option<Change> {
    let recorded = allocations.pod(&pod.uid).filter(|_| !pod.has_ended())?;
    let has_unknown = recorded.parts().any(|(_, part)| part.is_of_unknown_size());
    let restore = Restore { context, pod, notes: &mut Vec::new() };
    let entry = has_unknown.then(|| restore.sized(recorded)).flatten()?;
    Some(Change::Hold { entry, why: "its GPU is known now".to_owned() })
}

/// Whether the lists are newer than the ledger's entry of the pod.
fn untouched(allocations: &Allocations, as_of: u64, uid: &str) -> bool {
    allocations.changed_at(uid).is_none_or(|revision| revision <= as_of)
}

fn releases(allocations: &Allocations, observed: &Observed<'_>) -> Vec<Change> {
    let listed: HashMap<&str, &Arc<Pod>> = observed.pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
    let why = |pod: &PodRef| match listed.get(pod.uid.as_str()) {
        None => is_gone(observed, &pod.uid).then(|| "gone from the kubelet's list".to_owned()),
        Some(view) => view.has_ended().then(|| format!("{:?}, all containers terminated", view.phase)),
    };
    allocations
        .pods()
        .filter(|entry| untouched(allocations, observed.as_of, &entry.pod.uid))
        .filter_map(|PodEntry { pod, .. }| Some(Change::Release { pod: pod.clone(), why: why(pod)? }))
        .collect()
}

/// Whether a pod that isn't listed has ended: its cgroup is removed or, where that was never seen, it was listed before, or the
/// list is whole.
fn is_gone(observed: &Observed<'_>, uid: &str) -> bool {
    let was_listed = observed.listed_before.is_some_and(|listed| listed.contains(uid));
    match observed.cgroups.get(uid) {
        Some(state) => *state == CgroupState::Removed,
        None => was_listed || (observed.is_whole && !observed.pods.is_empty()),
    }
}

/// The kubelet's device records by pod. They name pods, the ledger knows UIDs: a name that two live pods have is
/// ambiguous.
fn records<'a>(observed: &Observed<'a>, inventory: &Inventory, notes: &mut Vec<String>) -> Vec<Record<'a>> {
    let Observed { pods, records, foreign, .. } = *observed;
    let mut named: BTreeMap<(&str, &str), Vec<Record<'a>>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.has_ended()) {
        let record = Record { pod, containers: BTreeMap::new() };
        named.entry((&pod.namespace, &pod.name)).or_default().push(record);
    }
    for assigned in records.into_iter().flatten().filter(|assigned| !assigned.devices.is_empty()) {
        let DeviceRecord { namespace, pod, container, devices, .. } = assigned;
        let known = match named.get_mut(&(namespace.as_str(), pod.as_str())).map(Vec::as_mut_slice) {
            // Ended, or already gone.
            None => Ok(()),
            Some([record]) => record.add(container, devices),
            Some(_) => Err("two pods have this name, so its devices have no clear holder".to_owned()),
        };
        if let Err(problem) = known {
            notes.push(format!("pod {namespace}/{pod}, container \"{container}\": {problem}"));
        }
    }
    let mut records: Vec<Record<'a>> = named.into_values().flatten().collect();
    for devices in foreign {
        if let Some(record) = records.iter_mut().find(|record| record.pod.uid == devices.uid) {
            record.add_foreign(devices, inventory);
        }
    }
    records.retain(|record| !record.containers.is_empty());
    records
}

/// Owner of each slot on record. A slot on record for two pods was allocated twice: it stays with its holder in the
/// ledger.
fn owners<'a>(
    allocations: &Allocations,
    as_of: u64,
    ended: &BTreeSet<&str>,
    records: &'a [Record<'a>],
) -> BTreeMap<SlotId, String> {
    let mut requesters: BTreeMap<SlotId, Vec<&str>> = BTreeMap::new();
    for record in records {
        for slot in record.containers.values().flatten().filter_map(Device::slot_id) {
            requesters.entry(slot).or_default().push(&record.pod.uid);
        }
    }
    let mut owners = BTreeMap::new();
    for (slot, requesters) in requesters {
        let holder = allocations.holder_of(&slot).map(|entry| entry.pod.uid.as_str());
        let keeps = |uid: &&str| requesters.contains(uid) || !untouched(allocations, as_of, uid);
        let holder = holder.filter(|uid| !ended.contains(uid)).filter(keeps);
        owners.extend(holder.or(requesters.first().copied()).map(|owner| (slot, owner.to_owned())));
    }
    owners
}

/// What the pod holds by the kubelet's records, if the ledger differs. What is noted of that is noted with it, as it is
/// compared again and again where devices are another system's.
fn hold(
    allocations: &Allocations,
    record: &Record<'_>,
    owners: &BTreeMap<SlotId, String>,
    context: &RestoreContext<'_>,
    notes: &mut Vec<String>,
) -> Option<Change> {
    let recorded = allocations.pod(&record.pod.uid);
    let mut of_pod = Vec::new();
    let mut entry = Restore { context, pod: record.pod, notes: &mut of_pod }.entry(recorded, &record.containers);
    for part in entry.parts_mut() {
        let owner = part.slot_id().and_then(|slot| owners.get(&slot));
        if owner.is_some_and(|uid| *uid != record.pod.uid) {
            part.lose_slot();
        }
    }
    if entry.parts().next().is_none() || recorded == Some(&entry) {
        return None;
    }
    notes.append(&mut of_pod);
    let why =
        if recorded.is_none() { "restored from the kubelet's records" } else { "corrected by the kubelet's records" };
    Some(Change::Hold { entry, why: why.to_owned() })
}

// === impl FoundContainer ===

impl FoundContainer {
    /// A container of which nothing was found.
    pub fn unknown() -> Self {
        Self { nonce: Nonce::random(), terms: Terms::default(), shares: Vec::new() }
    }
}

// === impl Record ===

impl<'a> Record<'a> {
    fn add(&mut self, container: &'a str, ids: &[String]) -> Result<(), String> {
        if self.pod.containers.iter().all(|spec| spec.name != container) {
            return Err("the pod has no such container".to_owned());
        }
        let devices: Result<Vec<Device>, _> = ids.iter().map(|id| id.parse()).collect();
        let devices = devices.map_err(|error| error.to_string())?;
        self.containers.entry(container).or_default().extend(devices);
        Ok(())
    }

    /// Adds the cards of another system's devices; all of the node's, if it is unclear which of them these are.
    fn add_foreign(&mut self, foreign: &'a ForeignDevices, node: &Inventory) {
        let all = || node.cards().iter().map(|card| card.id.clone()).collect();
        let cards = foreign.cards(self.pod, node).unwrap_or_else(all);
        let devices = self.containers.entry(&foreign.container).or_default();
        devices.extend(cards.into_iter().map(Device::whole));
        devices.sort();
        devices.dedup();
    }
}

#[cfg(test)]
mod tests;
