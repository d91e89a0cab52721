//! Tier `accounting`: shares are recorded in the ledger, and nothing enforces them.

use divvy_api::{CardId, Share, Tier};
use divvy_node_core::ports::Mount;

use super::Isolation;
use crate::container::directories::Container;
use crate::container::error::ContainerError;

/// Tier `accounting`, which every node supports.
#[derive(Clone, Copy, Debug)]
pub struct Accounting;

// === impl Accounting ===

impl Isolation for Accounting {
    fn tier(&self) -> Tier {
        Tier::Accounting
    }

    fn of(&self, tier: Tier) -> Option<&dyn Isolation> {
        (tier == Tier::Accounting).then_some(self)
    }

    fn prepare(&self, _: &Container, _: &[(CardId, Share)]) -> Result<(), ContainerError> {
        Ok(())
    }

    fn mounts(&self, _: &Container, _: &[(CardId, Share)]) -> Vec<Mount> {
        Vec::new()
    }

    fn clear(&self) {}
}
