//! Containers whose compute shares are paced by the clock pages.

use divvy_api::Tier;
use divvy_node_core::allocator::Allocator;
use divvy_node_core::ledger::{Holding, PodEntry};

use crate::container::clock::{Tenant, View};

/// Containers with shares enforced by the shim; `None` if the ledger still has the revision `known`.
pub(super) fn tenants(allocator: &Allocator, known: u64) -> Option<View> {
    let revision = allocator.ledger().revision();
    if revision == known {
        return None;
    }
    let holdings = allocator.ledger().allocations().pods().flat_map(PodEntry::holdings).map(|(_, holding)| holding);
    let tenants = holdings.filter(|holding| is_paced(holding, allocator.tier())).map(tenant).collect();
    Some(View { revision, tenants, ..View::default() })
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
