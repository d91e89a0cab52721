//! What `ListAndWatch` lists.

mod units;

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::gpunode::Scales;
use divvy_api::{MigProfile, ResourceName, ResourceNames, SlotId};
use divvy_proto::deviceplugin as api;

use divvy_node_core::inventory::{CardHealth, CardInfo, Inventory};
use divvy_node_core::ledger::Book;

/// The devices of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Registered by this name.
    pub resource: ResourceName,
    /// Everything that is listed for it.
    pub devices: Vec<api::Device>,
}

/// What of the configuration decides what is listed.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Names of our resources.
    pub names: ResourceNames,
    /// Slots listed for each card.
    pub slots_per_card: u32,
    /// Slots carry their card's NUMA node. The kubelet then counts healthy slots to tell what a NUMA node can take, so
    /// the free slots of cards with nothing left are listed as unhealthy.
    ///
    /// Seen on 1.36.3 with `single-numa-node`, scope `container`, on a machine of one node: parts of cards, several cards
    /// and whole ones are all admitted, also once more after the kubelet's restart. It asks for a preference as it does
    /// without topology: what isn't asked for (a tenth to a sixth of the Allocates) are containers that take over all
    /// slots of an init container. It counts slots, not cards: a request of two cards where one has room finds slots
    /// enough on one node, and we are the ones who refuse it.
    pub numa_topology: bool,
    /// How much of the cards is promised.
    pub scales: Scales,
    /// Units of memory and compute are devices too, not amounts on the Node.
    pub units: bool,
}

/// A slot as it is to be listed.
struct Slot {
    id: SlotId,
    healthy: bool,
    numa: Option<u32>,
}

/// Every slot of every card, by the resource that it is asked for by, and those that pods hold besides: of a card that
/// hasn't been seen since the daemon started, or of more slots a card than there are now. An ID once listed stays listed
/// as long as it is held: kubelets since 1.34 may crash over one that vanishes (reference: Kubernetes
/// `devicemanager/manager.go`, `allDevices[resource][id].Topology`); it turns unhealthy instead.
///
/// The plain count is always among them, also where it counts nothing. `given`: units that pods have.
pub fn offers(inventory: &Inventory, book: &Book, given: &BTreeSet<&str>, listing: &Listing) -> Vec<Offer> {
    let mut listed: BTreeMap<Option<&MigProfile>, Vec<Slot>> = [(None, Vec::new())].into();
    for card in &inventory.cards {
        listed.entry(card.asked_by()).or_default().extend(listing.slots(card, book));
    }
    let known: BTreeSet<SlotId> = listed.values().flatten().map(|slot| slot.id.clone()).collect();
    let held: BTreeMap<SlotId, Option<&MigProfile>> =
        book.slots_on_record().filter(|(slot, _)| !known.contains(slot)).collect();
    for (id, profile) in held {
        listed.entry(profile).or_default().push(Slot { id, healthy: false, numa: None });
    }
    let offer = |(profile, slots): (Option<&MigProfile>, Vec<Slot>)| Offer {
        resource: listing.names.counting(profile),
        devices: slots.into_iter().map(Slot::device).collect(),
    };
    let mut offers: Vec<Offer> = listed.into_iter().map(offer).collect();
    if listing.units {
        offers.extend(units::offers(inventory, book, given, listing));
    }
    offers
}

// === impl Listing ===

impl Listing {
    fn slots(&self, card: &CardInfo, book: &Book) -> impl Iterator<Item = Slot> {
        let is_healthy = card.health == CardHealth::Healthy;
        let held = book.slots_held(&card.id, None);
        let hides_free = self.numa_topology && self.is_full(card, book);
        let numa = card.numa.filter(|_| self.numa_topology);
        (0..self.slots_per_card).map(move |number| Slot {
            id: card.id.slot(number),
            healthy: is_healthy && (!hides_free || held.contains(&number)),
            numa,
        })
    }

    /// Whether no request whatever fits on the card.
    fn is_full(&self, card: &CardInfo, book: &Book) -> bool {
        let held = book.held(&card.id, None);
        held.exclusive || held.memory >= card.memory.percent(self.scales.memory)
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
