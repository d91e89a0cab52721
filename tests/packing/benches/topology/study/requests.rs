//! Requests that come to one machine, and when they go.

use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

use divvy_simulate::Rng;

/// A request of whole cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuRequest {
    pub(crate) cards: u32,
    /// It goes before the request of this number comes, counted from 0.
    pub(crate) until: u64,
}

/// How many of a hundred requests ask for so many cards.
const SIZES: [(u32, u32); 4] = [(1, 40), (2, 30), (4, 20), (8, 10)];
/// What requests would hold on average if none were refused, as a part of all cards.
const LOAD: f64 = 0.9;

/// Requests of one sequence. Lifetimes are drawn from an exponential distribution.
pub(crate) fn requests(cards: u32, count: usize, rng: &mut Rng) -> Vec<GpuRequest> {
    let mean_demand: f64 = SIZES.iter().map(|(size, percent)| f64::from(size * percent) / 100.0).sum();
    let mean_lifetime = LOAD * f64::from(cards) / mean_demand;
    let request = |now: u64| {
        let (cards, _) = SIZES.choose_weighted(rng, |(_, percent)| *percent).ok()?;
        let lifetime = -mean_lifetime * (1.0 - rng.random::<f64>()).ln();
        Some(GpuRequest { cards: *cards, until: now + 1 + lifetime as u64 })
    };
    (0..count as u64).map_while(request).collect()
}
