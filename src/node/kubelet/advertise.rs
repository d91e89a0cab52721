//! Advertises the node's GPUs: the devices that `ListAndWatch` lists, and the two ways for memory and compute beside them.
//!
//! Slots, the devices that containers get their GPUs by, are listed either way.

pub(super) mod devices;

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::{Card, MigProfile, ResourceName, ResourceNames, SlotId};
use divvy_proto::deviceplugin as api;

use crate::config::Advertise;

use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::{Allocations, PodEntry};

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

/// Slot to be listed.
struct Slot {
    id: SlotId,
    healthy: bool,
    numa: Option<u32>,
}

/// Devices of each resource: every slot of every card, and further slots that pods hold: of a card that hasn't been found
/// since the daemon started, or of more slots per card than are configured now. An ID once listed stays listed
/// as long as it is held: kubelets since 1.34 may crash over one that vanishes (reference: Kubernetes
/// `devicemanager/manager.go`, `allDevices[resource][id].Topology`); it turns unhealthy instead.
///
/// Free slots of a card with nothing left are unhealthy: scheduler and kubelet count healthy ones, and without amounts in the pod
/// nothing else tells them that the card is full.
///
/// The resource for whole GPUs is always included, even without devices. `given`: units that the kubelet gave to pods.
pub fn offers(
    inventory: &Inventory,
    allocations: &Allocations,
    given: &BTreeSet<&str>,
    listing: &Listing,
) -> Vec<Offer> {
    let mut on_record: BTreeMap<SlotId, Option<&MigProfile>> = allocations.slots_on_record().collect();
    let mut listed: BTreeMap<Option<&MigProfile>, Vec<Slot>> = [(None, Vec::new())].into();
    for card in inventory.cards() {
        listed.entry(card.requested_profile()).or_default().extend(listing.slots(card, allocations, &on_record));
    }
    let known: BTreeSet<SlotId> = listed.values().flatten().map(|slot| slot.id.clone()).collect();
    on_record.retain(|slot, _| !known.contains(slot));
    for (id, profile) in on_record {
        listed.entry(profile).or_default().push(Slot { id, healthy: false, numa: None });
    }
    let offer = |(profile, slots): (Option<&MigProfile>, Vec<Slot>)| Offer {
        resource: listing.names.counting(profile),
        devices: slots.into_iter().map(Slot::device).collect(),
    };
    let mut offers: Vec<Offer> = listed.into_iter().map(offer).collect();
    match listing.advertise {
        // Written to the Node's status by the publisher.
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

// === impl Listing ===

impl Listing {
    fn slots(
        &self,
        card: &Card,
        allocations: &Allocations,
        on_record: &BTreeMap<SlotId, Option<&MigProfile>>,
    ) -> impl Iterator<Item = Slot> {
        let is_healthy = card.is_healthy();
        let is_full = Self::is_full(card, allocations);
        let numa = card.numa.filter(|_| self.numa_topology);
        (0..card.slots).map(move |number| {
            let id = card.id.slot(number);
            Slot { healthy: is_healthy && (!is_full || on_record.contains_key(&id)), id, numa }
        })
    }

    /// Whether no request whatever fits on the card. Not while the kubelet still admits a pod that holds it: what an init
    /// container holds is also for the pod's later ones, which may need another slot of the same card.
    fn is_full(card: &Card, allocations: &Allocations) -> bool {
        let held = allocations.held(&card.id, None);
        let is_full = held.exclusive || held.memory >= card.memory_capacity();
        let holds = |entry: &PodEntry| {
            entry.holdings().any(|(_, holding)| holding.parts.iter().any(|part| part.card == card.id))
        };
        let is_admitted = |entry: &PodEntry| {
            entry.containers.iter().all(|container| container.request.request.is_none() || container.holding.is_some())
        };
        is_full && allocations.pods().filter(|entry| holds(entry)).all(is_admitted)
    }
}

// === impl Slot ===

impl Slot {
    fn device(self) -> api::Device {
        let health = if self.healthy { api::HEALTHY } else { api::UNHEALTHY }.to_owned();
        let topology = self.numa.map(|node| api::TopologyInfo { nodes: vec![api::NumaNode { id: node.into() }] });
        api::Device { id: self.id.to_string(), health, topology }
    }
}

#[cfg(test)]
mod tests;
