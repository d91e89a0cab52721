//! Which time of a card this process has paid for.
//!
//! Streams of one process run side by side: time in which several of them were busy is paid once.

/// Stretches that are kept apart. Streams are looked at each millisecond and all are paid up to that moment, so what comes
/// late lies back by the card's turns at most.
const STRETCHES: usize = 16;

/// Times that were paid, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paid {
    /// Apart from each other, in their order.
    stretches: [Stretch; STRETCHES],
    length: usize,
    /// Before it nothing is paid any more: what was known of that time had to make room.
    forgotten: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stretch {
    from: u64,
    to: u64,
}

// === impl Paid ===

impl Paid {
    pub(super) const fn new() -> Self {
        Self { stretches: [Stretch { from: 0, to: 0 }; STRETCHES], length: 0, forgotten: 0 }
    }

    /// Marks the time as paid, and names those parts of it that weren't yet.
    pub(super) fn pay(&mut self, from: u64, to: u64, mut unpaid: impl FnMut(u64, u64)) {
        let mut at = from.max(self.forgotten);
        if at >= to {
            return;
        }
        let mut added = Stretch { from: at, to };
        let mut rest = Self { length: 0, ..*self };
        let mut is_added = false;
        for stretch in self.stretches.iter().take(self.length).copied() {
            if stretch.to < added.from {
                rest.push(stretch);
                continue;
            }
            if stretch.from > to {
                if !is_added {
                    rest.push(added);
                    is_added = true;
                }
                rest.push(stretch);
                continue;
            }
            if at < stretch.from {
                unpaid(at, stretch.from);
            }
            at = at.max(stretch.to);
            added = Stretch { from: added.from.min(stretch.from), to: added.to.max(stretch.to) };
        }
        if at < to {
            unpaid(at, to);
        }
        if !is_added {
            rest.push(added);
        }
        *self = rest;
    }

    /// In the order of time; when there are too many, the first is forgotten.
    fn push(&mut self, stretch: Stretch) {
        if self.length == STRETCHES {
            self.forgotten = self.stretches.first().map_or(0, |first| first.to);
            self.stretches.rotate_left(1);
            self.length -= 1;
        }
        if let Some(place) = self.stretches.get_mut(self.length) {
            *place = stretch;
            self.length += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpaid(paid: &mut Paid, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        paid.pay(from, to, |from, to| parts.push((from, to)));
        parts
    }

    #[test]
    fn what_two_streams_did_at_once_is_paid_once() {
        let mut paid = Paid::new();
        assert_eq!(unpaid(&mut paid, 10, 20), [(10, 20)]);
        assert_eq!(unpaid(&mut paid, 30, 40), [(30, 40)]);
        assert_eq!(unpaid(&mut paid, 0, 100), [(0, 10), (20, 30), (40, 100)]);
        assert_eq!(unpaid(&mut paid, 0, 100), []);
        assert_eq!(unpaid(&mut paid, 100, 101), [(100, 101)]);
        assert_eq!(unpaid(&mut paid, 7, 3), []);
    }

    #[test]
    fn when_there_are_too_many_stretches_the_oldest_time_counts_as_paid() {
        let mut paid = Paid::new();
        for number in 0..=STRETCHES as u64 {
            assert_eq!(unpaid(&mut paid, 10 * number, 10 * number + 5), [(10 * number, 10 * number + 5)]);
        }
        assert_eq!(unpaid(&mut paid, 0, 25), [(5, 10), (15, 20)]);
    }

    proptest! {
        #[test]
        fn every_moment_is_paid_once(spans in prop::collection::vec((0_u64..64, 0_u64..64), 0..40)) {
            // No more stretches than fit lie apart in so little time.
            let mut paid = Paid::new();
            let mut known = [false; 64];
            for (from, to) in spans.into_iter().map(|(from, to)| (from / 3 * 3, to / 3 * 3)) {
                let (from, to) = (from / 2, to / 2);
                let fresh: Vec<u64> = (from..to).filter(|at| !known[*at as usize]).collect();
                let parts = unpaid(&mut paid, from, to).into_iter().flat_map(|(from, to)| from..to);
                prop_assert_eq!(parts.collect::<Vec<_>>(), fresh);
                (from..to).for_each(|at| known[at as usize] = true);
            }
        }
    }
}
