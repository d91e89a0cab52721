//! How busy the cards are, as their `GpuNode` says it: often enough to place pods by, and rarely enough to go unnoticed
//! among an API server's writes.

use std::time::Duration;

use divvy_api::gpunode::{GpuNodeStatus, Health};
use tokio::time::Instant;

use divvy_node_core::inventory::Inventory;

/// In percent: finer steps say nothing, and each would be a change.
const STEP: u32 = 10;
/// A change of less than this waits for something else to be written.
const WORTH_A_WRITE: u32 = 20;
/// Between two writes for the load alone. What is measured is an average over about as long.
const PAUSE: Duration = Duration::from_secs(60);

/// Writes that were made for the load alone.
#[derive(Debug, Default)]
pub(super) struct LoadWrites {
    last: Option<Instant>,
}

/// Puts loads into the status that was made of an inventory. A sick card's load is of before it fell ill.
pub(super) fn show(status: &mut GpuNodeStatus, inventory: &Inventory) {
    let healthy = status.cards.iter_mut().zip(&inventory.cards).filter(|(card, _)| card.health == Health::Healthy);
    for (card, info) in healthy {
        card.utilization = info.utilization.map(|percent| (percent + STEP / 2) / STEP * STEP);
    }
}

// === impl LoadWrites ===

impl LoadWrites {
    /// Whether a status should be written in place of the one that is shown, which differs.
    pub(super) fn are_due(&mut self, status: &GpuNodeStatus, shown: Option<&GpuNodeStatus>, now: Instant) -> bool {
        let Some(shown) = shown else { return true };
        let pairs = || status.cards.iter().zip(&shown.cards).map(|(new, old)| (new.utilization, old.utilization));
        let mut with_old_loads = status.clone();
        with_old_loads.cards.iter_mut().zip(pairs()).for_each(|(card, (_, old))| card.utilization = old);
        if with_old_loads != *shown {
            return true;
        }
        let has_moved = pairs().any(|(new, old)| match (new, old) {
            (Some(new), Some(old)) => new.abs_diff(old) >= WORTH_A_WRITE,
            (new, old) => new != old,
        });
        let is_due = has_moved && self.last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use divvy_api::Memory;
    use divvy_api::gpunode::CardStatus;

    use super::*;

    fn status(loads: [Option<u32>; 2]) -> GpuNodeStatus {
        let card = |(at, utilization)| CardStatus {
            uuid: format!("GPU-{at}").parse().expect("a UUID"),
            model: "NVIDIA L4".to_owned(),
            memory: Memory::mib(1024),
            health: Health::Healthy,
            reason: None,
            numa: None,
            links: Vec::new(),
            mig: None,
            plain: false,
            utilization,
        };
        GpuNodeStatus { cards: loads.into_iter().enumerate().map(card).collect(), ..GpuNodeStatus::default() }
    }

    #[test]
    fn loads_alone_are_written_once_they_have_moved_far_and_once_a_minute() {
        let (mut writes, start) = (LoadWrites::default(), Instant::now());
        let shown = status([Some(40), Some(0)]);
        let mut are_due =
            |seconds, loads| writes.are_due(&status(loads), Some(&shown), start + Duration::from_secs(seconds));
        assert!(!are_due(0, [Some(50), Some(10)]), "by a step");
        assert!(are_due(1, [Some(40), Some(20)]), "by two");
        assert!(!are_due(60, [Some(0), Some(100)]), "within a minute of the last such write");
        assert!(are_due(61, [Some(20), Some(0)]), "afterwards");
        assert!(are_due(200, [None, Some(0)]), "what isn't measured any more doesn't stand for ever");
    }

    #[test]
    fn with_other_news_loads_are_written_at_once() {
        let (mut writes, now) = (LoadWrites::default(), Instant::now());
        let (shown, news) = (status([Some(40), Some(0)]), status([Some(50), Some(0)]));
        assert!(writes.are_due(&news, None, now), "nothing is shown");
        assert!(writes.are_due(&GpuNodeStatus { ledger_revision: 1, ..news.clone() }, Some(&shown), now));
        let mut fewer = news.clone();
        fewer.cards.pop();
        assert!(writes.are_due(&fewer, Some(&shown), now));
        assert!(writes.are_due(&status([Some(90), Some(0)]), Some(&shown), now), "these were no writes for loads");
    }
}
