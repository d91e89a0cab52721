//! Best-fit: the host with the least left over, and there the tightest card.

use super::Score;
use crate::cluster::{Cards, Host};
use crate::workload::Kind;

/// As published beside FGD: half of the weight is free CPU by the largest machine's, half free cards by eight, in whole
/// percents; of what is free of a card the mean of compute and memory counts. The published scores are then stretched to
/// 0..100 over all hosts, which changes no order.
#[derive(Clone, Copy, Debug, Default)]
pub struct BestFit;

/// Thousandths of a CPU core.
const MOST_CPU: f64 = 128_000.0;
/// Thousandths of cards.
const MOST_CARDS: f64 = 8000.0;

impl Score for BestFit {
    fn rate(&self, host: &Host, kind: &Kind) -> (i64, Cards) {
        let cpu = f64::from(host.cpu - kind.cpu);
        let cards = f64::from(host.free()) / 2.0 - kind.demand();
        let left = 0.5 * cpu / MOST_CPU + 0.5 * cards / MOST_CARDS;
        ((100.0 * (1.0 - left)).floor() as i64, host.tightest(kind))
    }
}
