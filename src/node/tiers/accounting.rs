//! Tier `accounting`: shares are booked and written down, and nothing enforces them.

use divvy_api::{CardId, Share, Tier};
use divvy_proto::deviceplugin::Mount;

use super::Enforcement;
use crate::delivery::{Container, DeliveryError};

/// Serves it. Needs nothing of the node.
#[derive(Clone, Copy, Debug)]
pub struct Accounting;

// === impl Accounting ===

impl Enforcement for Accounting {
    fn tier(&self) -> Tier {
        Tier::Accounting
    }

    fn of(&self, tier: Tier) -> Option<&dyn Enforcement> {
        (tier == Tier::Accounting).then_some(self)
    }

    fn furnish(&self, _: &Container, _: &[(CardId, Share)]) -> Result<(), DeliveryError> {
        Ok(())
    }

    fn mounts(&self, _: &Container, _: &[(CardId, Share)]) -> Vec<Mount> {
        Vec::new()
    }

    fn clear(&self) {}
}
