//! Packing: a card in use before a free card of a host in use, before a free card of a host that nobody uses.

use divvy_simulate::cluster::{Cards, Host};
use divvy_simulate::policy::Score;
use divvy_simulate::workload::{Kind, Part};

/// As published beside FGD, under the name of GPU packing. What is free of a card in use is the mean of its compute and its
/// memory, and a card counts as free that has all of both.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packing;

impl Score for Packing {
    fn rate(&self, host: &Host, kind: &Kind) -> (i64, Cards) {
        if kind.cards == 0 {
            return (0, Cards::default()); // wherever there is room
        }
        let cards = host.tightest(kind);
        let (all, whole) = (host.cards.len() as i64, host.whole_cards() as i64);
        let free = || cards.positions().map(|card| host.cards[card]);
        let taken = free().filter(|free| *free == Part::WHOLE).count() as i64;
        let score = match taken {
            _ if whole == all => (33 - all).max(all),
            0 => 100 - free().map(|free| i64::from(free.sum() / 200)).sum::<i64>(), // tenths of a card
            taken => 50 - taken,
        };
        (score, cards)
    }
}
