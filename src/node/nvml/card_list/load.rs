//! How busy a card is, evened out: NVML tells of the last second or less, in which a training step may just have begun.

use std::time::{Duration, Instant};

/// After so long a sample counts for a third of what it did.
const MEMORY: Duration = Duration::from_secs(60);

/// An average in which newer samples count more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    percent: f64,
    at: Instant,
}

// === impl Load ===

impl Load {
    /// With one more sample, in percent. It stands for the whole time since the one before.
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
    fn the_first_sample_is_believed_and_later_ones_change_it_by_and_by() {
        assert_eq!(average(&[(0, 80)]), 80);
        assert_eq!(average(&[(0, 0), (60, 100)]), 63);
        assert_eq!(average(&[(0, 0), (5, 100), (5, 0), (5, 100), (5, 0)]), 14);
        let minutes = |count: usize| [&[(0, 100)][..], &vec![(5, 0); 12 * count]].concat();
        assert_eq!([1, 2, 5].map(|count| average(&minutes(count))), [37, 14, 1]);
    }

    #[test]
    fn how_often_it_is_looked_at_makes_no_difference() {
        let steady =
            |pause: u64| [&[(0, 0)][..], &vec![(pause, 100); 60 / usize::try_from(pause).expect("small")]].concat();
        assert_eq!([1, 5, 60].map(|pause| average(&steady(pause))), [63; 3]);
    }

    #[test]
    fn nonsense_of_a_driver_is_no_more_than_all() {
        assert_eq!(average(&[(0, u32::MAX), (0, 100)]), 100);
    }
}
