//! Binpack: the fullest cards first, then as few new ones as possible.

use divvy_api::Card;

use super::spread::load;
use crate::node_state::Held;

/// What is free of a card before the pod comes, in thousandths of it; more than nothing, so that fewer cards are better.
pub(super) fn emptiness(card: &Card, held: &Held) -> u64 {
    1001 - load(card, held).min(1000)
}
