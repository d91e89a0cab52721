//! The state for `/debug/state`: what the daemon decides by.

use std::sync::PoisonError;

use divvy_api::Card;
use divvy_node_core::allocator::{Allocator, lock};
use divvy_node_core::inventory::{CardProcess, DeviceInfo, Inventory, MigPlace};
use serde_json::{Value, json};

use super::Pages;
use crate::kubelet::registration::RegistrationStatus;

/// The state now. Ledger, inventory and pods are those of one moment, the rest is of another one.
pub(super) fn state(pages: &Pages) -> Value {
    let allocator = decisions(&lock(&pages.allocator));
    let registration = match &*pages.states.registration.borrow() {
        RegistrationStatus::Registered => "registered".to_owned(),
        RegistrationStatus::Unregistered => "not registered".to_owned(),
        RegistrationStatus::Conflict(conflict) => format!("not registered: {conflict}"),
    };
    let unlisted = pages.unlisted.lock().unwrap_or_else(PoisonError::into_inner).current().map(str::to_owned);
    let [containers, dead] = pages.containers.directories();
    json!({
        "allocator": allocator,
        "registration": registration,
        "podListProblem": unlisted,
        "configurationProblem": pages.states.config.borrow().problem,
        "desired": &*pages.desired.borrow(),
        "containers": {
            "strategies": pages.containers.strategies(),
            "regionsBounded": pages.containers.are_regions_bounded(),
            "directories": containers,
            "directoriesOfEnded": dead,
        },
        "usage": &**pages.states.usage.borrow(),
    })
}

fn decisions(allocator: &Allocator) -> Value {
    let ledger = allocator.ledger();
    let containers = allocator.containers();
    let journal = ledger.journal_health();
    let (under_admission, order) = allocator.under_admission();
    json!({
        "tier": allocator.tier(),
        "tierProblem": containers.problem(),
        "ledger": {
            "revision": ledger.revision(),
            "journalWritable": journal.is_writable,
            "journalRewritten": journal.is_rewritten,
            "pods": ledger.allocations().pods().collect::<Vec<_>>(),
        },
        "admission": {
            "listedPods": allocator.listed().len(),
            "waitingPods": allocator.waiting(allocator.listed()),
            "underAdmission": under_admission,
            "order": order,
        },
        "inventory": inventory(allocator.inventory()),
    })
}

fn inventory(inventory: &Inventory) -> Value {
    let Inventory { driver, problem, .. } = inventory;
    let driver = driver.as_ref().map(|driver| json!({ "version": driver.version, "cuda": driver.cuda }));
    json!({ "driver": driver, "problem": problem, "cards": inventory.each().map(|(card, device)| self::card(card, device)).collect::<Vec<_>>() })
}

fn card(card: &Card, device: &DeviceInfo) -> Value {
    let instance = card.mig.as_ref().zip(device.place.as_ref()).map(|(mig, MigPlace { gpu, gi, ci })| {
        json!({ "profile": mig.profile.to_string(), "parent": gpu, "gpuInstance": gi, "computeInstance": ci })
    });
    let processes = device.processes.as_ref().map(|processes| {
        processes.iter().map(|CardProcess { pid, bytes }| json!({ "pid": pid, "bytes": bytes })).collect::<Vec<_>>()
    });
    json!({
        "uuid": card.id, "model": &*card.model, "memoryMi": card.memory, "pciBusId": device.pci_bus_id,
        "minor": device.minor, "index": device.index, "numa": card.numa, "mig": instance, "clique": device.clique,
        "unhealthy": card.health.reason(), "memoryUsedMi": device.memory_used, "utilization": card.utilization, "processes": processes,
    })
}
