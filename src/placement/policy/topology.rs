//! Topology: cards that are well linked, and well linked cards left for later.

use std::collections::HashMap;

use divvy_contract::Share;

use crate::card::{Card, Held};
use crate::links::{CardSet, LINKED_CARDS, Link, Links};

/// How much worse than the best a container's cards are linked; nothing for one card.
pub(super) fn worst_link(links: &Links, set: &[usize]) -> u64 {
    links.bottleneck(set).map_or(0, |link| Link::BEST_RANK - link.rank())
}

/// What the cards that nobody holds are worth together.
pub(super) struct FreeSets {
    empty: CardSet,
    worth: u64,
    /// Of sets met before: a search meets the same few again and again.
    left: HashMap<CardSet, u64>,
}

// === impl FreeSets ===

impl FreeSets {
    pub(super) fn new(cards: &[Card], links: &Links) -> Self {
        let linked = cards.iter().enumerate().take(LINKED_CARDS);
        let empty = linked.filter(|(_, card)| card.healthy && card.held == Held::default());
        let empty = empty.fold(0, |set, (card, _)| set | 1 << card);
        Self { empty, worth: links.value(empty), left: HashMap::new() }
    }

    /// What is gone of it once these cards are in use.
    pub(super) fn lost(&mut self, links: &Links, touched: &[(usize, Share)]) -> u64 {
        let linked = touched.iter().map(|(card, _)| *card).filter(|card| *card < LINKED_CARDS);
        let left = linked.fold(self.empty, |left, card| left & !(1 << card));
        if left == self.empty {
            return 0;
        }
        self.worth - *self.left.entry(left).or_insert_with(|| links.value(left))
    }
}
