//! Spread: the emptiest cards first, and no two containers on one card where another is free.

use divvy_contract::Share;

use super::permille;
use crate::card::Card;

/// How full a card is, in thousandths: memory and compute alike.
pub(super) fn load(card: &Card) -> u64 {
    load_with(card, &Share::default())
}

/// Grows with the square of the load, so that one more claim costs least where there is least.
pub(super) fn crowding(card: &Card, share: &Share) -> u64 {
    let (before, after) = (load(card), load_with(card, share));
    (after * after).saturating_sub(before * before)
}

fn load_with(card: &Card, share: &Share) -> u64 {
    if card.held.exclusive || share.exclusive {
        return 1000;
    }
    let memory = card.held.memory.saturating_add(share.memory).as_mib();
    let cores = card.held.cores.saturating_add(share.cores).units();
    let memory = permille(memory, card.memory_capacity.as_mib());
    u64::midpoint(memory, permille(cores.into(), card.cores_capacity.units().into()))
}
