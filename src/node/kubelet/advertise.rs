//! What `ListAndWatch` lists.

use std::collections::BTreeSet;

use divvy_contract::SlotId;
use divvy_proto::deviceplugin as api;

use crate::inventory::{CardHealth, CardInfo, Inventory};
use crate::ledger::Book;

/// Every slot of every card, and those that pods hold besides: of a card that hasn't been seen since the daemon
/// started, or of more slots a card than there are now. An ID once listed stays listed as long as it is held: kubelets
/// since 1.34 may crash over one that vanishes (reference: Kubernetes `devicemanager/manager.go`,
/// `allDevices[resource][id].Topology`); it turns unhealthy instead.
pub fn devices(inventory: &Inventory, book: &Book, slots_per_card: u32) -> Vec<api::Device> {
    let slots = |card: &CardInfo| {
        let healthy = card.health == CardHealth::Healthy;
        let card = card.id.clone();
        (0..slots_per_card).map(move |number| (card.slot(number), healthy))
    };
    let mut listed: Vec<(SlotId, bool)> = inventory.cards.iter().flat_map(slots).collect();
    let known: BTreeSet<&SlotId> = listed.iter().map(|(slot, _)| slot).collect();
    let held: Vec<SlotId> = book.slots_on_record().into_iter().filter(|slot| !known.contains(slot)).collect();
    listed.extend(held.into_iter().map(|slot| (slot, false)));
    let device = |(slot, healthy): (SlotId, bool)| api::Device {
        id: slot.to_string(),
        health: if healthy { api::HEALTHY } else { api::UNHEALTHY }.to_owned(),
        topology: None,
    };
    listed.into_iter().map(device).collect()
}
