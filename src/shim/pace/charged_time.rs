//! The time of a card that this process was charged for.
//!
//! Streams of one process run side by side: time in which several of them were busy is charged once.

/// Intervals that are kept apart. Streams are looked at each millisecond and all are charged up to that moment, so what comes
/// late lies back by the card's turns at most.
const INTERVALS: usize = 16;

/// Times that were charged, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChargedTime {
    /// Intervals that were charged, disjoint and in order of time.
    intervals: [Interval; INTERVALS],
    length: usize,
    /// The end of the last interval that was dropped: nothing before it is charged any more.
    forgotten: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Interval {
    from: u64,
    to: u64,
}

// === impl ChargedTime ===

impl ChargedTime {
    pub(super) const fn new() -> Self {
        Self { intervals: [Interval { from: 0, to: 0 }; INTERVALS], length: 0, forgotten: 0 }
    }

    /// Marks the time as charged, and names those parts of it that weren't yet.
    pub(super) fn charge(&mut self, from: u64, to: u64, mut uncharged: impl FnMut(u64, u64)) {
        let mut at = from.max(self.forgotten);
        if at >= to {
            return;
        }
        let mut added = Interval { from: at, to };
        let mut rest = Self { length: 0, ..*self };
        let mut is_added = false;
        for interval in self.intervals.iter().take(self.length).copied() {
            if interval.to < added.from {
                rest.push(interval);
                continue;
            }
            if interval.from > to {
                if !is_added {
                    rest.push(added);
                    is_added = true;
                }
                rest.push(interval);
                continue;
            }
            if at < interval.from {
                uncharged(at, interval.from);
            }
            at = at.max(interval.to);
            added = Interval { from: added.from.min(interval.from), to: added.to.max(interval.to) };
        }
        if at < to {
            uncharged(at, to);
        }
        if !is_added {
            rest.push(added);
        }
        *self = rest;
    }

    /// Adds the latest interval; when there are too many, the first is dropped.
    fn push(&mut self, interval: Interval) {
        if self.length == INTERVALS {
            self.forgotten = self.intervals.first().map_or(0, |first| first.to);
            self.intervals.rotate_left(1);
            self.length -= 1;
        }
        if let Some(entry) = self.intervals.get_mut(self.length) {
            *entry = interval;
            self.length += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uncharged(charged: &mut ChargedTime, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        charged.charge(from, to, |from, to| parts.push((from, to)));
        parts
    }

    #[test]
    fn concurrent_streams_are_charged_once() {
        let mut charged = ChargedTime::new();
        assert_eq!(uncharged(&mut charged, 10, 20), [(10, 20)]);
        assert_eq!(uncharged(&mut charged, 30, 40), [(30, 40)]);
        assert_eq!(uncharged(&mut charged, 0, 100), [(0, 10), (20, 30), (40, 100)]);
        assert_eq!(uncharged(&mut charged, 0, 100), []);
        assert_eq!(uncharged(&mut charged, 100, 101), [(100, 101)]);
        assert_eq!(uncharged(&mut charged, 7, 3), []);
    }

    #[test]
    fn oldest_time_counts_as_charged_when_intervals_run_out() {
        let mut charged = ChargedTime::new();
        for number in 0..=INTERVALS as u64 {
            assert_eq!(uncharged(&mut charged, 10 * number, 10 * number + 5), [(10 * number, 10 * number + 5)]);
        }
        assert_eq!(uncharged(&mut charged, 0, 25), [(5, 10), (15, 20)]);
    }

    proptest! {
        #[test]
        fn every_moment_is_charged_once(spans in prop::collection::vec((0_u64..64, 0_u64..64), 0..40)) {
            // No more intervals than fit lie apart in so little time.
            let mut charged = ChargedTime::new();
            let mut known = [false; 64];
            for (from, to) in spans.into_iter().map(|(from, to)| (from / 3 * 3, to / 3 * 3)) {
                let (from, to) = (from / 2, to / 2);
                let fresh: Vec<u64> = (from..to).filter(|at| !known[*at as usize]).collect();
                let parts = uncharged(&mut charged, from, to).into_iter().flat_map(|(from, to)| from..to);
                prop_assert_eq!(parts.collect::<Vec<_>>(), fresh);
                (from..to).for_each(|at| known[at as usize] = true);
            }
        }
    }
}
