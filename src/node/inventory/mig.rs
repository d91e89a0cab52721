//! What of a GPU is a card: all of it, or each of its MIG instances.

use serde::{Deserialize, Serialize};

/// `migStrategy`, by the names of NVIDIA's plugin. GPUs out of MIG mode are cards in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigStrategy {
    /// Instances are left alone, so a GPU in MIG mode can't be given out.
    #[default]
    None,
    /// Instances are cards like any other.
    Single,
    /// Instances are cards of a resource of their profile.
    Mixed,
}

// === impl MigStrategy ===

impl MigStrategy {
    /// Whether instances are cards.
    pub(super) fn makes_cards(self) -> bool {
        self != Self::None
    }

    /// Why a GPU in MIG mode is not given out as a whole.
    pub(super) fn objection(self) -> &'static str {
        if self.makes_cards() {
            "in MIG mode: its instances are cards"
        } else {
            "in MIG mode: set migStrategy to single or mixed, or take the card out of MIG mode"
        }
    }
}
