//! Spread: the emptiest cards first, and no two containers on one card where another is free.

use divvy_api::{Card, Cores, Memory, Share};

use super::alone::CardTraits;
use super::permille;
use crate::card_free::CardFree;
use crate::node_state::Held;

/// How full a card is, in thousandths: memory and compute alike.
pub(super) fn load(card: &Card, held: &Held) -> u64 {
    let capacity = (card.memory_capacity(), card.cores_capacity());
    if held.exclusive { 1000 } else { filled((held.memory, held.cores), capacity) }
}

/// What a share adds to the square of a card's load, so that one more request costs least where there is least.
pub(super) fn crowding(traits: &CardTraits, free: &CardFree, share: &Share) -> u64 {
    let before = load_with(traits, free, &Share::default());
    let after = load_with(traits, free, share);
    (after * after).saturating_sub(before * before)
}

/// How full a card is with one more share. What is held beyond the capacity isn't free either way, and fuller than full is full.
fn load_with(traits: &CardTraits, free: &CardFree, share: &Share) -> u64 {
    let memory = traits.memory_capacity.saturating_sub(free.memory).saturating_add(share.on_card());
    let cores = traits.cores_capacity.saturating_sub(free.cores).saturating_add(share.cores);
    let capacity = (traits.memory_capacity, traits.cores_capacity);
    if traits.is_exclusive || share.exclusive { 1000 } else { filled((memory, cores), capacity) }
}

fn filled((memory, cores): (Memory, Cores), (memory_capacity, cores_capacity): (Memory, Cores)) -> u64 {
    let memory = permille(memory.as_mib(), memory_capacity.as_mib());
    u64::midpoint(memory, permille(cores.units().into(), cores_capacity.units().into()))
}
