//! Devices of other systems that share GPUs: which GPUs a container uses that such a system's device plugin has served.
//!
//! A node is moved to Divvy while pods of another system run on it. The kubelet keeps the device IDs of that system on
//! record for them, and most of these name no GPU, or another one than the container uses: what it uses is in the
//! annotations that the system has written. Where those are missing or can't be read it is unclear, and then any GPU of
//! the node may be meant.
//!
//! [`divvy_systems`] has the resources of each system and where its GPUs are named. The format of an annotation is told by its
//! kind: lists of UUIDs, or numbers.
//!
//! Pure: a record, a pod and the node's cards in, cards out.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::{CardId, ContainerKind, ContainerSpec, ResourceNames};
use divvy_systems::{INDEX, NAME, NamedGpus, named_gpus, uuids_of_drawn_ids};
use uuid::Uuid;

use crate::inventory::{DeviceInfo, Inventory};
use crate::pod::{DeviceRecord, Pod};

/// Devices of another system that the kubelet has on record for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignDevices {
    /// UID of the pod.
    pub uid: String,
    /// Name of the container.
    pub container: String,
    /// Resource of the devices.
    pub resource: String,
    /// Device IDs; none where they don't tell which GPUs they are.
    pub ids: Vec<String>,
}

/// Whether a resource is another system's, unless it is one of Divvy's names.
pub fn is_known(resource: &str) -> bool {
    named_gpus(resource).is_some()
}

/// Whether a resource is another system's whose device IDs don't tell which GPUs they are.
pub fn hides_cards(resource: &str) -> bool {
    named_gpus(resource).is_some_and(|gpus| !matches!(gpus, NamedGpus::InIds))
}

/// Whether the pod has annotations of a system whose resources are named as Divvy's.
pub fn has_drawn_ids(pod: &Pod) -> bool {
    uuids_of_drawn_ids().any(|key| pod.annotations.contains_key(key))
}

/// The first resource of another system in the limits of a pod.
pub fn resource_of<'a>(names: &ResourceNames, pod: &'a Pod) -> Option<&'a str> {
    let mut limits = pod.containers.iter().flat_map(|container| container.limits.keys());
    limits.find(|resource| !names.is_ours(resource) && is_known(resource)).map(String::as_str)
}

/// Whether the devices are another system's. Under Divvy's own names those are whose IDs the kubelet draws: others of
/// NVIDIA's device plugin are named as Divvy's slots, or after their GPUs.
pub fn is_foreign(names: &ResourceNames, record: &DeviceRecord) -> bool {
    if names.counts_cards(&record.resource) {
        record.devices.iter().any(|id| split(id).is_some())
    } else {
        is_known(&record.resource)
    }
}

/// The annotations that name the GPUs of a resource, for people.
pub fn keys(resource: &str) -> String {
    match named_gpus(resource) {
        None | Some(NamedGpus::InIds) => uuids_of_drawn_ids().collect::<Vec<_>>().join(" or "),
        Some(gpus) => gpus.keys().join(" or "),
    }
}

// === impl ForeignDevices ===

impl ForeignDevices {
    /// Devices of a record that a pod has.
    pub fn new(pod: &Pod, record: DeviceRecord) -> Self {
        let DeviceRecord { container, resource, devices, .. } = record;
        // There may be one for each MiB.
        let ids = if hides_cards(&resource) { Vec::new() } else { devices };
        Self { uid: pod.uid.clone(), container, resource, ids }
    }

    /// Cards that the container uses, of these on the node; `None` if that is unclear. A GPU that is partitioned stands for
    /// its instances.
    pub fn cards(&self, pod: &Pod, node: &Inventory) -> Option<BTreeSet<CardId>> {
        let container = pod.containers.iter().find(|container| container.name == self.container)?;
        // Under a name that isn't in the table it is one of Divvy's.
        let cards = match named_gpus(&self.resource).unwrap_or(NamedGpus::InIds) {
            NamedGpus::InIds => self.by_ids(pod),
            NamedGpus::ByUuid(keys) => uuids(&annotations(pod, container, keys)),
            NamedGpus::ByNumber(keys) => numbered(&annotations(pod, container, keys), node),
            NamedGpus::Nowhere => None,
        };
        let cards = cards.filter(|cards| !cards.is_empty())?;
        Some(cards.into_iter().flat_map(|card| with_instances(card, node)).collect())
    }

    /// Cards by the device IDs. Where the kubelet draws them, containers use what the system's scheduler has chosen; those of a
    /// plugin that had no scheduler are what they say.
    fn by_ids(&self, pod: &Pod) -> Option<BTreeSet<CardId>> {
        let chosen: Vec<&str> =
            uuids_of_drawn_ids().filter_map(|key| pod.annotations.get(key)).map(String::as_str).collect();
        if !chosen.is_empty() && self.ids.iter().any(|id| split(id).is_some()) {
            return uuids(&chosen);
        }
        let card = |id: &String| split(id).or_else(|| id.split("::").next()?.parse().ok());
        self.ids.iter().map(card).collect()
    }
}

/// The card of a device ID `<UUID>-<n>`, which the kubelet has drawn.
fn split(id: &str) -> Option<CardId> {
    let (card, number) = id.rsplit_once('-')?;
    let uuid = card.strip_prefix("GPU-").or_else(|| card.strip_prefix("MIG-"))?;
    let is_whole = uuid.len() == 36 && Uuid::try_parse(uuid).is_ok();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_whole && is_number { card.parse().ok() } else { None }
}

/// Values of those of the annotations that the pod has.
fn annotations<'a>(pod: &'a Pod, container: &ContainerSpec, keys: &[&str]) -> Vec<&'a str> {
    keys.iter().filter_map(|key| annotation(pod, container, key)).collect()
}

/// Value of the annotation that has a container's name or number in its key.
fn annotation<'a>(pod: &'a Pod, container: &ContainerSpec, pattern: &str) -> Option<&'a str> {
    // Init containers are numbered on their own, and no system that numbers containers knows them.
    if pattern.ends_with(INDEX) && container.kind != ContainerKind::App {
        return None;
    }
    let key = pattern.replace(NAME, &container.name).replace(INDEX, &container.index.to_string());
    pod.annotations.get(&key).map(String::as_str)
}

/// Cards of lists of UUIDs: `<UUID>,<model>,<MiB>,<cores>` for each, `:` between or after the cards of a container, `;` after
/// each container. Here each container has all of the pod's: some versions leave out what is between the containers.
fn uuids(texts: &[&str]) -> Option<BTreeSet<CardId>> {
    let entries = texts.iter().flat_map(|text| text.split([':', ';'])).filter(|entry| !entry.trim().is_empty());
    // Of a MIG instance its place on the GPU follows in brackets.
    let card = |entry: &str| entry.split([',', '[']).next()?.trim().parse::<CardId>().ok();
    entries.map(card).collect()
}

/// Cards of numbers, `1` or `0,1` or an object of units by card by container.
///
/// A number is a minor to some systems, and an index of NVML's, which follows PCI addresses, to others: both may be meant.
/// Where a minor is missing a GPU has gone, and indices may have changed since.
fn numbered(texts: &[&str], node: &Inventory) -> Option<BTreeSet<CardId>> {
    let mut minors: Vec<u32> = node.devices.iter().map(|device| device.minor).collect::<Option<_>>()?;
    minors.dedup();
    let count = u32::try_from(minors.len()).ok()?;
    let is_complete = (0..count).all(|minor| minors.contains(&minor));
    let numbers: Vec<u32> = texts.iter().map(|text| numbers(text)).collect::<Option<Vec<_>>>()?.concat();
    if !is_complete || numbers.iter().any(|number| *number >= count) {
        return None;
    }
    let meant: BTreeSet<u32> = numbers.iter().flat_map(|number| [*number, minors[*number as usize]]).collect();
    let is_meant = |device: &DeviceInfo| device.minor.is_some_and(|minor| meant.contains(&minor));
    Some(node.each().filter(|(_, device)| is_meant(device)).map(|(card, _)| card.id.clone()).collect())
}

fn numbers(text: &str) -> Option<Vec<u32>> {
    type ByContainer = BTreeMap<String, BTreeMap<String, u64>>;
    let number = |text: &str| text.trim().parse::<u32>().ok();
    match serde_json::from_str::<ByContainer>(text) {
        Ok(containers) => containers.into_values().flat_map(BTreeMap::into_keys).map(|text| number(&text)).collect(),
        Err(_) => text.split(',').map(number).collect(),
    }
}

/// The instances of a GPU, or the card itself.
fn with_instances(card: CardId, node: &Inventory) -> Vec<CardId> {
    let is_of = |device: &DeviceInfo| device.place.as_ref().is_some_and(|place| place.gpu == card);
    let instances = node.each().filter(|(_, device)| is_of(device)).map(|(other, _)| other.id.clone());
    let instances: Vec<CardId> = instances.collect();
    if instances.is_empty() { vec![card] } else { instances }
}

#[cfg(test)]
mod tests;
