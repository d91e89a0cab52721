//! Devices of other systems that share GPUs: which GPUs a container uses that such a system's device plugin has served.
//!
//! A node is moved to Divvy while pods of another system run on it. The kubelet keeps the device IDs of that system on
//! record for them, and most of these name no GPU, or another one than the container uses: what it uses is in the
//! annotations that the system has written. Where those are missing or can't be read it is unclear, and then any GPU of
//! the node may be meant.
//!
//! | system | resources | GPUs |
//! |---|---|---|
//! | NVIDIA's device plugin | `nvidia.com/gpu`, `gpu.shared`, `mig-*` | device IDs `<UUID>` and `<UUID>::<n>` |
//! | HAMi, 4paradigm | `nvidia.com/gpu` | UUIDs in annotations; without these device IDs `<UUID>-<n>` |
//! | Volcano | `volcano.sh/vgpu-*` | UUIDs in an annotation |
//! | gpushare, nano-gpu, elastic-gpu, gpu-manager, Volcano's older plugin | their own | numbers in annotations |
//! | qGPU, vgpu-manager, Koordinator | their own | always unclear |
//!
//! Pure: a record, a pod and the node's cards in, cards out.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::{CardId, ContainerKind, ContainerSpec, ResourceNames};
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

/// A system's resources, each a name or, with `*` at its end, the start of several; and where its GPUs are named.
struct System {
    resources: &'static [&'static str],
    source: Source,
}

/// Where a system says which GPUs a container uses. A key may end in [`NAME`] or [`INDEX`].
#[derive(Clone, Copy)]
enum Source {
    /// In its device IDs.
    Ids,
    /// By UUID, in one of these annotations.
    Uuids(&'static [&'static str]),
    /// By number, in one of these annotations.
    Numbers(&'static [&'static str]),
    /// Nowhere that is read here.
    Nowhere,
}

/// The container's name.
const NAME: &str = "<name>";
/// The container's position in `spec.containers`.
const INDEX: &str = "<index>";

/// Annotations of HAMi, of one version of 4paradigm's scheduler, and of the others.
const HAMI: &[&str] = &["hami.io/vgpu-devices-allocated", "hami.sh/vgpu-devices-allocated", "4pd.io/vgpu-ids-new"];
const VOLCANO: &[&str] = &["volcano.sh/vgpu-ids-new"];
const OLD_VOLCANO: &[&str] = &["volcano.sh/gpu-index"];
const GPUSHARE: &[&str] = &["ALIYUN_COM_GPU_MEM_IDX", "scheduler.framework.gpushare.allocation"];
const NANO_GPU: &[&str] = &["nano-gpu.io/gpu-<name>", "nano-gpu/container-<name>"];
const ELASTIC_GPU: &[&str] = &["elasticgpu.io/container-<name>", "elasticgpu.com/container-<name>"];
const GPU_MANAGER: &[&str] = &["tencent.com/predicate-gpu-idx-<index>"];

const SYSTEMS: &[System] = &[
    System { resources: &["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*"], source: Source::Ids },
    System { resources: &["volcano.sh/vgpu-*"], source: Source::Uuids(VOLCANO) },
    System { resources: &["volcano.sh/gpu-*"], source: Source::Numbers(OLD_VOLCANO) },
    System { resources: &["aliyun.com/gpu-*"], source: Source::Numbers(GPUSHARE) },
    System { resources: &["nano-gpu/*", "nano-gpu.io/*"], source: Source::Numbers(NANO_GPU) },
    System { resources: &["elasticgpu.io/*", "elasticgpu.com/*"], source: Source::Numbers(ELASTIC_GPU) },
    System { resources: &["tencent.com/vcuda-*"], source: Source::Numbers(GPU_MANAGER) },
    // qGPU, vgpu-manager, Koordinator; HAMi's priority, which comes with its other resources.
    System {
        resources: &["tke.cloud.tencent.com/qgpu-*", "nvidia.com/vgpu-*", "koordinator.sh/gpu*", "nvidia.com/priority"],
        source: Source::Nowhere,
    },
];

/// Whether a resource is another system's, unless it is one of Divvy's names.
pub fn is_known(resource: &str) -> bool {
    source(resource).is_some()
}

/// Whether a resource is another system's whose device IDs don't tell which GPUs they are.
pub fn hides_cards(resource: &str) -> bool {
    source(resource).is_some_and(|source| !matches!(source, Source::Ids))
}

/// Whether annotations with this key are read here.
pub fn is_read(key: &str) -> bool {
    let is_meant = |pattern: &str| match pattern.split_once('<') {
        Some((start, _)) => key.starts_with(start),
        None => key == pattern,
    };
    SYSTEMS.iter().flat_map(|system| system.source.keys()).chain(HAMI).any(|pattern| is_meant(pattern))
}

/// Whether the pod has annotations of HAMi, whose resources are named as Divvy's.
pub fn is_of_hami(pod: &Pod) -> bool {
    HAMI.iter().any(|key| pod.annotations.contains_key(*key))
}

/// The first resource of another system in the limits of a pod.
pub fn resource_of<'a>(names: &ResourceNames, pod: &'a Pod) -> Option<&'a str> {
    let mut limits = pod.containers.iter().flat_map(|container| container.limits.keys());
    limits.find(|resource| !names.is_ours(resource) && is_known(resource)).map(String::as_str)
}

/// Whether the devices are another system's. Under Divvy's own names those are that have IDs as HAMi's: others of
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
    source(resource).unwrap_or(Source::Ids).keys().join(" or ")
}

fn source(resource: &str) -> Option<Source> {
    let is_meant = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => resource.starts_with(start),
        None => resource == *pattern,
    };
    SYSTEMS.iter().find(|system| system.resources.iter().any(is_meant)).map(|system| system.source)
}

// === impl Source ===

impl Source {
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Ids => HAMI,
            Self::Uuids(keys) | Self::Numbers(keys) => keys,
            Self::Nowhere => &[],
        }
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
        let cards = match source(&self.resource).unwrap_or(Source::Ids) {
            Source::Ids => self.by_ids(pod),
            Source::Uuids(keys) => uuids(&annotations(pod, container, keys)),
            Source::Numbers(keys) => numbered(&annotations(pod, container, keys), node),
            Source::Nowhere => None,
        };
        let cards = cards.filter(|cards| !cards.is_empty())?;
        Some(cards.into_iter().flat_map(|card| with_instances(card, node)).collect())
    }

    /// Cards by the device IDs. HAMi's are drawn by the kubelet, and its containers use what its scheduler has chosen; those
    /// of the plugin before it, which had no scheduler, are what they say.
    fn by_ids(&self, pod: &Pod) -> Option<BTreeSet<CardId>> {
        let chosen: Vec<&str> = HAMI.iter().filter_map(|key| pod.annotations.get(*key)).map(String::as_str).collect();
        if !chosen.is_empty() && self.ids.iter().any(|id| split(id).is_some()) {
            return uuids(&chosen);
        }
        let card = |id: &String| split(id).or_else(|| id.split("::").next()?.parse().ok());
        self.ids.iter().map(card).collect()
    }
}

/// The card of a device ID of HAMi's, `<UUID>-<n>`.
fn split(id: &str) -> Option<CardId> {
    let (card, number) = id.rsplit_once('-')?;
    let uuid = card.strip_prefix("GPU-").or_else(|| card.strip_prefix("MIG-"))?;
    let is_whole = uuid.len() == 36 && Uuid::try_parse(uuid).is_ok();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_whole && is_number { card.parse().ok() } else { None }
}

/// Values of those of the annotations that the pod has.
fn annotations<'a>(pod: &'a Pod, container: &ContainerSpec, keys: &[&str]) -> Vec<&'a str> {
    let value = |pattern: &&str| {
        // Init containers are numbered on their own, and gpu-manager doesn't know them.
        if pattern.ends_with(INDEX) && container.kind != ContainerKind::App {
            return None;
        }
        let key = pattern.replace(NAME, &container.name).replace(INDEX, &container.index.to_string());
        pod.annotations.get(&key).map(String::as_str)
    };
    keys.iter().filter_map(value).collect()
}

/// Cards of HAMi's lists: `<UUID>,<model>,<MiB>,<cores>` for each, `:` between or after the cards of a container, `;` after
/// each container. Here each container has all of the pod's: some versions leave out what is between the containers.
fn uuids(texts: &[&str]) -> Option<BTreeSet<CardId>> {
    let entries = texts.iter().flat_map(|text| text.split([':', ';'])).filter(|entry| !entry.trim().is_empty());
    // Of a MIG instance its place on the GPU follows in brackets.
    let card = |entry: &str| entry.split([',', '[']).next()?.trim().parse::<CardId>().ok();
    entries.map(card).collect()
}

/// Cards of numbers, `1` or `0,1` or, by ACK, an object of units by card by container.
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
