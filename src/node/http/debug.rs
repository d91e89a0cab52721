//! The state for `/debug/state`: what the daemon decides by.

use std::sync::PoisonError;

use divvy_node_core::allocator::{Allocator, lock};
use divvy_node_core::inventory::{CardHealth, CardInfo, CardProcess, Inventory};
use serde_json::{Value, json};

use super::Pages;
use crate::kubelet::registration::RegistrationStatus;

/// The state now. Ledger, inventory and pods are those of one moment, the rest is of another one.
pub(super) fn state(pages: &Pages) -> Value {
    let allocator = decisions(&lock(&pages.allocator));
    let registration = match &*pages.registration.borrow() {
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
        "configurationProblem": pages.config.borrow().problem,
        "desired": &*pages.desired.borrow(),
        "containers": {
            "strategies": pages.containers.strategies(),
            "regionsBounded": pages.containers.are_regions_bounded(),
            "directories": containers,
            "directoriesOfEnded": dead,
        },
        "usage": &**pages.usage.borrow(),
    })
}

fn decisions(allocator: &Allocator) -> Value {
    let (ledger, containers) = (allocator.ledger(), allocator.containers());
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
    let Inventory { driver, cards, links: _, problem } = inventory;
    let driver = driver.as_ref().map(|driver| json!({ "version": driver.version, "cuda": driver.cuda }));
    json!({ "driver": driver, "problem": problem, "cards": cards.iter().map(card).collect::<Vec<_>>() })
}

fn card(card: &CardInfo) -> Value {
    let unhealthy = match &card.health {
        CardHealth::Healthy => None,
        CardHealth::Unhealthy { reason } => Some(reason),
    };
    let instance = card.mig.as_ref().map(|mig| {
        json!({ "profile": mig.profile.to_string(), "parent": mig.parent, "gpuInstance": mig.gi, "computeInstance": mig.ci })
    });
    let processes = card.processes.as_ref().map(|processes| {
        processes.iter().map(|CardProcess { pid, bytes }| json!({ "pid": pid, "bytes": bytes })).collect::<Vec<_>>()
    });
    json!({
        "uuid": card.id, "model": card.model, "memoryMi": card.memory, "pciBusId": card.pci_bus_id, "minor": card.minor,
        "index": card.index, "numa": card.numa, "mig": instance, "clique": card.clique, "unhealthy": unhealthy,
        "memoryUsedMi": card.memory_used, "utilization": card.utilization, "processes": processes,
    })
}
