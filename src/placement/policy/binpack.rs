//! Binpack: the fullest cards first, then as few new ones as possible.

use super::spread::load;
use crate::card::Card;

/// What is free of a card before the pod comes, in thousandths of it; more than nothing, so that fewer cards are better.
pub(super) fn emptiness(card: &Card) -> u64 {
    1001 - load(card).min(1000)
}
