//! Slots: the devices that containers get their GPUs by, whichever way memory and compute are advertised.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::{Card, MigProfile, SlotId};
use divvy_proto::deviceplugin as api;

use super::{Listing, Offer};
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::{Allocations, PodEntry};

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
/// The resource for whole GPUs is always included, even without devices.
pub(super) fn offers(inventory: &Inventory, allocations: &Allocations, listing: &Listing) -> Vec<Offer> {
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
    listed.into_iter().map(offer).collect()
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
