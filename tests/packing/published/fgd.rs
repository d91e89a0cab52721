//! Fragmentation gradient descent (Weng et al., USENIX ATC 2023): the host and card where the least becomes useless to the
//! requests that are expected.

use divvy_simulate::cluster::{Cards, Host};
use divvy_simulate::policy::Score;
use divvy_simulate::target::Target;
use divvy_simulate::workload::Kind;

/// As published: of growth Δ in thousandths of a card the score is floor(100 · sigmoid(−Δ / 1000)), so that about 40
/// thousandths are one step near 0. Half of what it gains comes of these steps: they keep it from opening new hosts for
/// next to nothing. [`Target::fragmented`] says what counts as useless where compute and memory differ.
#[derive(Clone, Copy, Debug)]
pub struct Fgd<'a> {
    target: &'a Target,
}

// === impl Fgd ===

impl<'a> Fgd<'a> {
    /// With these requests expected.
    pub fn new(target: &'a Target) -> Self {
        Self { target }
    }
}

impl Score for Fgd<'_> {
    fn rate(&self, host: &Host, kind: &Kind) -> (i64, Cards) {
        let before = self.target.fragmented(host);
        let rate = |cards: Cards| {
            let growth = self.target.fragmented(&host.with(kind, cards)) - before;
            ((100.0 / (1.0 + (growth / 1000.0).exp())).floor() as i64, cards)
        };
        if !kind.is_share() {
            return rate(host.fitting(kind).take(kind.cards as usize).collect());
        }
        let rated = host.fitting(kind).map(|card| rate(Cards::one(card)));
        // The first of equals, which `max_by_key` wouldn't give.
        rated.reduce(|best, next| if next.0 > best.0 { next } else { best }).unwrap_or_default()
    }
}
