//! Advertises the node's GPUs: the devices that `ListAndWatch` lists, and the two ways for memory and compute beside them.
//!
//! | `advertise` | memory and compute | what pods request |
//! |---|---|---|
//! | `amounts` | [`crate::apiserver`] writes them to the Node's status | amounts |
//! | `devices` | `devices`: the kubelet counts units, and the daemon writes nothing to its Node | units |
//!
//! `slots`, the devices that containers get their GPUs by, are listed either way.

pub(super) mod devices;
mod slots;

use std::collections::BTreeSet;

use divvy_api::{ResourceName, ResourceNames};
use divvy_proto::deviceplugin as api;

use crate::config::Advertise;

use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::Allocations;

/// The devices of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Name that the resource is registered by.
    pub resource: ResourceName,
    /// All devices that are listed for the resource.
    pub devices: Vec<api::Device>,
}

// === impl Offer ===

impl Offer {
    /// How many of the devices are healthy.
    pub fn healthy(&self) -> u64 {
        self.devices.iter().filter(|device| device.health == api::HEALTHY).count() as u64
    }
}

/// Settings that decide what is listed.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Names of Divvy's resources.
    pub names: ResourceNames,
    /// Slots carry their card's NUMA node. The kubelet then counts healthy slots to tell what a NUMA node can take.
    ///
    /// Observed on 1.36.3 with `single-numa-node`, scope `container`, on a machine of one NUMA node: requests for parts of
    /// GPUs, several GPUs and whole ones are all admitted, also again after the kubelet's restart. The kubelet calls
    /// GetPreferredAllocation as it does without topology, except (a tenth to a sixth of the Allocates) for containers that
    /// take over all slots of an init container. It counts slots, not GPUs: a request for two GPUs where only one has free
    /// capacity finds slots enough on one NUMA node, and Allocate refuses it.
    pub numa_topology: bool,
    /// How memory and compute are advertised.
    pub advertise: Advertise,
}

/// Devices of each resource. `given`: units that the kubelet gave to pods.
pub fn offers(
    inventory: &Inventory,
    allocations: &Allocations,
    given: &BTreeSet<&str>,
    listing: &Listing,
) -> Vec<Offer> {
    let mut offers = slots::offers(inventory, allocations, listing);
    match listing.advertise {
        Advertise::Amounts => {}
        Advertise::Devices => offers.extend(devices::offers(inventory, allocations, given, listing)),
    }
    offers
}

/// Whether the daemon writes amounts of memory and compute, and devices, to its Node itself.
pub fn writes_node(advertise: Advertise) -> bool {
    match advertise {
        Advertise::Amounts => true,
        Advertise::Devices => false,
    }
}

/// Leaves healthy only what pods hold: nothing more is allocated, and a kubelet that restarts admits running pods again, which it
/// doesn't with unhealthy devices. `given`: units that the kubelet gave to pods.
pub fn keep_held(offers: &mut [Offer], allocations: &Allocations, given: &BTreeSet<&str>) {
    let held: BTreeSet<String> = allocations.slots_on_record().map(|(slot, _)| slot.to_string()).collect();
    let is_held = |device: &api::Device| held.contains(&device.id) || given.contains(device.id.as_str());
    for device in offers.iter_mut().flat_map(|offer| &mut offer.devices).filter(|device| !is_held(device)) {
        api::UNHEALTHY.clone_into(&mut device.health);
    }
}

#[cfg(test)]
mod tests;
