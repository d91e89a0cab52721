//! Which launches of a stream are measured, with the gap before them: any launch as likely as any other.
//!
//! They are counted down to, not waited for: what is the first after some time has come after a gap more often than others,
//! and a program could have its gaps there. The count is drawn; its mean follows how many launches come in the time that is
//! to lie between two.

/// Time between two drawn launches, on average, ns: recording the events of one costs a few microseconds.
const INTERVAL_NS: u64 = 400_000;
/// The longest time between two of them that counts, ns: a program that has rested launches as it did before.
const LONGEST_NS: u64 = 16 * INTERVAL_NS;
/// Weight of all earlier intervals beside the next one, in 32nds: the mean is of 13 ms, longer than what a program does again
/// and again.
const KEPT: u64 = 31;
/// In units of which launches are counted, so that their mean keeps its fraction.
const FRACTION: u64 = 64;

/// Countdown to the next drawn launch of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Draw {
    /// Launches that aren't drawn before the next one that is.
    left: u64,
    /// Launches since the last one that was.
    launches: u64,
    drawn_ns: u64,
    /// Sums over the intervals so far, the later ones with more weight.
    all_launches: u64,
    all_ns: u64,
}

// === impl Draw ===

impl Draw {
    pub(super) const fn new() -> Self {
        Self { left: 0, launches: 0, drawn_ns: 0, all_launches: 0, all_ns: 0 }
    }

    /// Whether the launch at this moment is drawn.
    #[inline]
    pub(super) fn draws(&mut self, now_ns: u64) -> bool {
        self.launches += 1;
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.begin_interval(now_ns);
        true
    }

    fn begin_interval(&mut self, now_ns: u64) {
        let interval_ns = now_ns.saturating_sub(self.drawn_ns).min(LONGEST_NS);
        self.all_ns = self.all_ns / 32 * KEPT + interval_ns;
        self.all_launches = self.all_launches / 32 * KEPT + self.launches.saturating_mul(FRACTION);
        (self.launches, self.drawn_ns) = (0, now_ns);
        let expected = u128::from(self.all_launches) * u128::from(INTERVAL_NS);
        let expected = expected.checked_div(u128::from(self.all_ns) * u128::from(FRACTION)).unwrap_or(0) as u64;
        self.left = now_ns / 7 % (2 * expected + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many launches with these gaps before them, over and over, which are drawn; and how many there are in all.
    fn drawn(gaps_ns: &[u64], launches: usize) -> Vec<usize> {
        let (mut draw, mut now_ns) = (Draw::new(), 1 << 40);
        let mut counts = vec![0; gaps_ns.len()];
        for launch in 0..launches {
            let at = launch % gaps_ns.len();
            now_ns += gaps_ns[at] + 9;
            counts[at] += usize::from(draw.draws(now_ns));
        }
        counts
    }

    #[test]
    fn launches_after_gaps_are_drawn_as_often_as_others() {
        // Two launches with gaps, and fifty without.
        let mut gaps = vec![240_000, 400_000];
        gaps.extend([10_000; 50]);
        let counts = drawn(&gaps, 2_000_000);
        let all: usize = counts.iter().sum();
        let after_gaps = counts[0] + counts[1];
        let fair = all * 2 / gaps.len();
        assert!(after_gaps.abs_diff(fair) * 10 < fair, "{after_gaps} of {all} instead of {fair}");
    }

    #[test]
    fn as_many_are_drawn_as_the_interval_says_at_any_pace() {
        for gap_ns in [2_000, 20_000, 100_000, 390_000, 5_000_000] {
            let launches = 200_000;
            let drawn = drawn(&[gap_ns], launches)[0] as u64;
            let expected = (launches as u64 * gap_ns / INTERVAL_NS).min(launches as u64);
            assert!(drawn <= expected * 3 / 2 && drawn >= expected / 2, "{gap_ns} ns: {drawn} instead of {expected}");
        }
    }

    #[test]
    fn clock_that_is_set_back_draws_on() {
        let mut draw = Draw::new();
        let before = (0..1000).filter(|at| draw.draws((1 << 40) + 10_000 * at)).count();
        assert!(before > 0 && (0..1000_u64).any(|at| draw.draws(10_000 * at)));
    }
}
