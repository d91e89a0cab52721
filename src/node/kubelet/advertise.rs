//! What `ListAndWatch` lists.

use std::collections::{BTreeMap, BTreeSet};

use divvy_contract::{MigProfile, ResourceName, ResourceNames, SlotId};
use divvy_proto::deviceplugin as api;

use crate::inventory::{CardHealth, Inventory};
use crate::ledger::Book;

/// The devices of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Registered by this name.
    pub resource: ResourceName,
    /// Everything that is listed for it.
    pub devices: Vec<api::Device>,
}

/// Every slot of every card, by the resource that it is asked for by, and those that pods hold besides: of a card that
/// hasn't been seen since the daemon started, or of more slots a card than there are now. An ID once listed stays listed
/// as long as it is held: kubelets since 1.34 may crash over one that vanishes (reference: Kubernetes
/// `devicemanager/manager.go`, `allDevices[resource][id].Topology`); it turns unhealthy instead.
///
/// The plain count is always among them, also where it counts nothing.
pub fn offers(inventory: &Inventory, book: &Book, slots_per_card: u32, names: &ResourceNames) -> Vec<Offer> {
    let mut listed: BTreeMap<Option<&MigProfile>, Vec<(SlotId, bool)>> = [(None, Vec::new())].into();
    for card in &inventory.cards {
        let slots = (0..slots_per_card).map(|number| (card.id.slot(number), card.health == CardHealth::Healthy));
        listed.entry(card.asked_by()).or_default().extend(slots);
    }
    let known: BTreeSet<SlotId> = listed.values().flatten().map(|(slot, _)| slot.clone()).collect();
    let held: BTreeMap<SlotId, Option<&MigProfile>> =
        book.slots_on_record().filter(|(slot, _)| !known.contains(slot)).collect();
    for (slot, profile) in held {
        listed.entry(profile).or_default().push((slot, false));
    }
    let offer = |(profile, slots): (Option<&MigProfile>, Vec<(SlotId, bool)>)| Offer {
        resource: names.counting(profile),
        devices: slots.into_iter().map(device).collect(),
    };
    listed.into_iter().map(offer).collect()
}

fn device((slot, healthy): (SlotId, bool)) -> api::Device {
    let health = if healthy { api::HEALTHY } else { api::UNHEALTHY }.to_owned();
    api::Device { id: slot.to_string(), health, topology: None }
}
