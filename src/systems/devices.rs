//! What the kubelet and a pod's annotations tell of devices that other systems' plugins have given.

use crate::{ALL, is_meant};

/// Devices of some resources.
#[derive(Clone, Copy, Debug)]
pub struct Devices {
    /// Resources, each a name or, with `*` at its end, the start of several.
    pub resources: &'static [&'static str],
    /// Where it says which GPUs a container uses.
    pub gpus: NamedGpus,
}

/// Where a system says which GPUs a container uses. A key may end in [`NAME`] or [`INDEX`].
#[derive(Clone, Copy, Debug)]
pub enum NamedGpus {
    /// In its device IDs, `<UUID>` or `<UUID>::<n>`.
    InIds,
    /// By UUID, in one of these annotations.
    ByUuid(&'static [&'static str]),
    /// By number, in one of these annotations.
    ByNumber(&'static [&'static str]),
    /// Nowhere that can be read.
    Nowhere,
}

/// The container's name.
pub const NAME: &str = "<name>";
/// The container's position in `spec.containers`.
pub const INDEX: &str = "<index>";

/// Where a system says which GPUs the devices of this resource are; `None` if the resource is of no known system.
pub fn named_gpus(resource: &str) -> Option<NamedGpus> {
    let mut all = ALL.into_iter().flat_map(|system| system.devices);
    let is_of = |devices: &&Devices| devices.resources.iter().any(|pattern| is_meant(pattern, resource));
    all.find(is_of).map(|devices| devices.gpus)
}

/// Annotations with the UUIDs of GPUs whose devices have IDs that the kubelet draws.
pub fn uuids_of_drawn_ids() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().flat_map(|system| system.drawn_ids).copied()
}

/// Whether annotations with this key name GPUs.
pub fn names_gpus(key: &str) -> bool {
    let is_key = |pattern: &str| match pattern.split_once('<') {
        Some((start, _)) => key.starts_with(start),
        None => key == pattern,
    };
    let of_devices = ALL.into_iter().flat_map(|system| system.devices).flat_map(|devices| devices.gpus.keys());
    of_devices.copied().chain(uuids_of_drawn_ids()).any(is_key)
}

// === impl NamedGpus ===

impl NamedGpus {
    /// The annotations, if it is these.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::ByUuid(keys) | Self::ByNumber(keys) => keys,
            Self::InIds | Self::Nowhere => &[],
        }
    }
}
