//! Average utilization of a card: NVML reports that of the last second or less, in which a training step may just have begun.

use std::time::{Duration, Instant};

/// Time constant of the average: after this time a sample has a third of its weight.
const MEMORY: Duration = Duration::from_secs(60);

/// Exponentially weighted average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    percent: f64,
    at: Instant,
}

// === impl Load ===

impl Load {
    /// Adds a sample in percent, which stands for the whole time since the previous one.
    pub(super) fn with(before: Option<Self>, percent: u32, at: Instant) -> Self {
        let sample = f64::from(percent.min(100));
        let before = before.unwrap_or(Self { percent: sample, at });
        let age = at.saturating_duration_since(before.at);
        let kept = (-age.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        Self { percent: sample + kept * (before.percent - sample), at }
    }

    /// From 0 to 100.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an average of numbers from 0 to 100")]
    pub(super) fn percent(self) -> u32 {
        self.percent.round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The average after samples of so many percent, each so many seconds after the one before.
    fn average(samples: &[(u64, u32)]) -> u32 {
        let (mut at, mut load) = (Instant::now(), None);
        for (pause, percent) in samples {
            at += Duration::from_secs(*pause);
            load = Some(Load::with(load, *percent, at));
        }
        load.expect("a sample").percent()
    }

    #[test]
    fn utilization_is_an_exponential_average() {
        assert_eq!(average(&[(0, 80)]), 80);
        assert_eq!(average(&[(0, 0), (60, 100)]), 63);
        assert_eq!(average(&[(0, 0), (5, 100), (5, 0), (5, 100), (5, 0)]), 14);
        let minutes = |count: usize| [&[(0, 100)][..], &vec![(5, 0); 12 * count]].concat();
        assert_eq!([1, 2, 5].map(|count| average(&minutes(count))), [37, 14, 1]);
    }

    #[test]
    fn utilization_average_is_independent_of_interval() {
        let steady =
            |pause: u64| [&[(0, 0)][..], &vec![(pause, 100); 60 / usize::try_from(pause).expect("small")]].concat();
        assert_eq!([1, 5, 60].map(|pause| average(&steady(pause))), [63; 3]);
    }

    #[test]
    fn utilization_is_clamped_to_100() {
        assert_eq!(average(&[(0, u32::MAX), (0, 100)]), 100);
    }
}
