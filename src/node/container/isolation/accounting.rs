//! Tier `accounting`: shares are recorded in the ledger, and nothing enforces them.

use divvy_api::Tier;

use super::Isolation;

/// Tier `accounting`, which every node supports.
#[derive(Clone, Copy, Debug)]
pub struct Accounting;

// === impl Accounting ===

impl Isolation for Accounting {
    fn tier(&self) -> Tier {
        Tier::Accounting
    }
}
