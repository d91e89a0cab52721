//! Utilization of the GPUs in the `GpuNode`: written often enough to place pods by it, and rarely enough for the API server.

use std::time::Duration;

use divvy_api::NodeCards;
use divvy_api::gpunode::{GpuNodeStatus, HealthStatus};
use tokio::time::Instant;

/// Step of the written utilization, in percent.
const STEP: u32 = 10;
/// Smallest change, in percent, that is written by itself.
const WORTH_A_WRITE: u32 = 20;
/// Shortest time between two writes for the utilization alone. The measured average is over about as long.
const PAUSE: Duration = Duration::from_secs(60);

/// Writes that were made for the utilization alone.
#[derive(Debug, Default)]
pub(super) struct UtilizationWrites {
    last: Option<Instant>,
}

/// Sets the utilization in the status made from these cards. That of an unhealthy GPU is from before it became unhealthy.
pub(super) fn show(status: &mut GpuNodeStatus, node: &NodeCards) {
    let healthy = status.cards.iter_mut().zip(&node.cards).filter(|(shown, _)| shown.health == HealthStatus::Healthy);
    for (shown, card) in healthy {
        shown.utilization = card.utilization.map(|percent| (percent + STEP / 2) / STEP * STEP);
    }
}

// === impl UtilizationWrites ===

impl UtilizationWrites {
    /// Whether a status should be written in place of the current one, which differs.
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
            utilization,
            ..CardStatus::healthy(format!("GPU-{at}").parse().expect("a UUID"), "NVIDIA L4", Memory::mib(1024))
        };
        GpuNodeStatus { cards: loads.into_iter().enumerate().map(card).collect(), ..GpuNodeStatus::default() }
    }

    #[test]
    fn utilization_alone_is_written_once_a_minute() {
        let (mut writes, start) = (UtilizationWrites::default(), Instant::now());
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
    fn utilization_is_written_with_any_other_change() {
        let (mut writes, now) = (UtilizationWrites::default(), Instant::now());
        let (shown, news) = (status([Some(40), Some(0)]), status([Some(50), Some(0)]));
        assert!(writes.are_due(&news, None, now), "nothing is shown");
        assert!(writes.are_due(&GpuNodeStatus { ledger_revision: 1, ..news.clone() }, Some(&shown), now));
        let mut fewer = news.clone();
        fewer.cards.pop();
        assert!(writes.are_due(&fewer, Some(&shown), now));
        assert!(writes.are_due(&status([Some(90), Some(0)]), Some(&shown), now), "these were no writes for loads");
    }
}
