//! What the clock pages are written from: the containers whose compute shares they pace, and the driver's use of memory.

use std::sync::{Arc, Mutex, PoisonError};

use divvy_api::Tier;
use divvy_node_core::allocator::{Allocator, SharedAllocator, lock};
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::{Holding, PodEntry};
use tokio::sync::watch;

use crate::container::clock::{ClockView, Tenant};
use crate::usage::DriverMemoryTable;

/// Where the clock's views come from.
pub(super) struct Feed {
    allocator: SharedAllocator,
    inventory: watch::Receiver<Arc<Inventory>>,
    driver_memory: Arc<Mutex<DriverMemoryTable>>,
    /// Revision of the driver's figures in the last view; `None` before the first.
    figures: Option<u64>,
}

// === impl Feed ===

impl Feed {
    pub(super) fn new(
        allocator: SharedAllocator,
        inventory: watch::Receiver<Arc<Inventory>>,
        driver_memory: Arc<Mutex<DriverMemoryTable>>,
    ) -> Self {
        Self { allocator, inventory, driver_memory, figures: None }
    }

    /// The present view; `None` if nothing has changed since the last one, which was of the ledger's revision `known`.
    pub(super) fn next(&mut self, known: u64) -> Option<ClockView> {
        // Figures that change after this are news the next time.
        let figures = self.driver_memory.lock().unwrap_or_else(PoisonError::into_inner).revision();
        let is_news = self.figures != Some(figures) || self.inventory.has_changed().unwrap_or(false);
        let view = tenants(&lock(&self.allocator), (!is_news).then_some(known))?;
        self.figures = Some(figures);
        let table = self.driver_memory.lock().unwrap_or_else(PoisonError::into_inner);
        Some(ClockView { driver_memory: table.of_cards(&self.inventory.borrow_and_update()), ..view })
    }
}

/// Containers with shares enforced by the shim; `None` if the ledger still has the revision `known`.
fn tenants(allocator: &Allocator, known: Option<u64>) -> Option<ClockView> {
    let revision = allocator.ledger().revision();
    if known == Some(revision) {
        return None;
    }
    let holdings = allocator.ledger().allocations().pods().flat_map(PodEntry::holdings).map(|(_, holding)| holding);
    let tenants = holdings.filter(|holding| is_paced(holding, allocator.tier())).map(tenant).collect();
    Some(ClockView { revision, tenants, ..ClockView::default() })
}

fn is_paced(holding: &Holding, served: Tier) -> bool {
    holding.parts.iter().any(|part| !part.share.exclusive) && holding.terms_under(served).tier == Tier::Shim
}

fn tenant(holding: &Holding) -> Tenant {
    Tenant {
        nonce: holding.nonce,
        cards: holding.parts.iter().map(|part| (part.card.clone(), part.share.cores)).collect(),
        priority: holding.terms.priority,
    }
}

#[cfg(test)]
mod tests;
