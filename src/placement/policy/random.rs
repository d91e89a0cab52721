//! Random: any card, decided by the seed.

use divvy_api::Card;

use super::Outcome;

/// A number that the seed gives to a card; it follows the card's UUID, so that nodes differ.
pub(super) fn random_number(seed: u64, card: &Card) -> u64 {
    card.id.as_str().bytes().fold(mixed(seed), |state, byte| mixed(state ^ u64::from(byte)))
}

/// A number for the latest choice.
pub(super) fn chance(random_numbers: &[u64], outcome: &Outcome) -> u64 {
    let latest = outcome.sets.iter().enumerate().rfind(|(_, set)| !set.is_empty());
    let random_number =
        |(step, set): (usize, &Vec<usize>)| Some(mixed(random_numbers.get(*set.last()?)? ^ step as u64));
    latest.and_then(random_number).unwrap_or(0)
}

/// The number for the choice of this card alone.
pub(super) fn chance_of(seed: u64, card: &Card) -> u64 {
    mixed(random_number(seed, card))
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014): every bit of the state reaches every bit of the result.
pub(crate) fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
