//! How much of the time between launches a stream has work.
//!
//! A program whose processor can't launch as fast as the card works leaves gaps between kernels. Those that a marker is
//! behind are known; a marker behind each launch would cost more than the gaps. So of two launches that follow one another
//! both are marked now and then, and what lies between two other markers is taken to have as many gaps. Which launches those
//! are is as good as drawn: only who traces the library's own calls sees it, and only once the first of the two is marked.

/// Weight of all earlier samples beside the next one, in eighths.
const KEPT: u64 = 7;

/// Samples of a stream: times between two launches, and for how much of them it had work, ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Duty {
    busy_ns: u64,
    all_ns: u64,
}

// === impl Duty ===

impl Duty {
    pub(super) const fn new() -> Self {
        Self { busy_ns: 0, all_ns: 0 }
    }

    /// Takes into account that a stream had work for so much of so long a time.
    pub(super) fn observe(&mut self, busy_ns: u64, all_ns: u64) {
        self.busy_ns = (self.busy_ns / 8 * KEPT).saturating_add(busy_ns);
        self.all_ns = (self.all_ns / 8 * KEPT).saturating_add(all_ns).max(self.busy_ns);
    }

    /// For how much of a time in which launches came there was no work.
    pub(super) fn idle_ns(&self, launching_ns: u64) -> u64 {
        let idle = u128::from(launching_ns) * u128::from(self.all_ns - self.busy_ns);
        idle.checked_div(u128::from(self.all_ns)).map_or(0, |idle| idle as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_as_long_as_those_that_were_measured() {
        let mut duty = Duty::new();
        assert_eq!(duty.idle_ns(400_000), 0, "nothing is known");
        (0..100).for_each(|_| duty.observe(20_000, 60_000));
        assert!(duty.idle_ns(300_000).abs_diff(200_000) < 100, "{duty:?}");
        (0..100).for_each(|_| duty.observe(60_000, 60_000));
        assert!(duty.idle_ns(300_000) < 100, "{duty:?}");
        duty.observe(u64::MAX, u64::MAX);
        assert_eq!(duty.idle_ns(u64::MAX), 0);
    }
}
