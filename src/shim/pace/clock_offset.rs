//! The offset of a card's clock from `CLOCK_MONOTONIC`.
//!
//! The driver says how long it was between two events, not when they were. Of each we know two moments of our clock between
//! which it was reached, and all of them together tell by how much the clocks differ: of all streams of a card, for what
//! they did at once is told by their times.

/// The offset of a card's clock from the host's.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockOffset {
    /// What the card's clock showed when it was read last, ns.
    last_ns: i64,
    /// By how much the host's clock is ahead at least, and at most, ns.
    ahead: Option<(i64, i64)>,
}

/// A clock runs faster than another by so many nanoseconds each 2¹³ at most.
const DRIFT_DIVISOR: u64 = 1 << 13;

// === impl ClockOffset ===

impl ClockOffset {
    pub(super) const fn new() -> Self {
        Self { last_ns: 0, ahead: None }
    }

    /// When the card's clock showed this time, by ours: not before the one moment, and not after the other.
    pub(super) fn reached(&mut self, card_ns: i64, not_before: u64, not_after: u64) -> u64 {
        let not_after = not_after.max(not_before);
        let ahead_at = |ours: u64| i64::try_from(i128::from(ours) - i128::from(card_ns)).unwrap_or(0);
        let seen = (ahead_at(not_before), ahead_at(not_after));
        let slack = i64::try_from(card_ns.abs_diff(self.last_ns) / DRIFT_DIVISOR).unwrap_or(i64::MAX);
        let (least, most) = self.ahead.map_or(seen, |(least, most)| {
            (least.saturating_sub(slack).max(seen.0), most.saturating_add(slack).min(seen.1))
        });
        // What contradicts itself is of a clock that was set, or of a driver that is wrong.
        let (least, most) = if least <= most { (least, most) } else { seen };
        *self = Self { last_ns: card_ns, ahead: Some((least, most)) };
        let ours = i128::from(card_ns) + i128::midpoint(least.into(), most.into());
        u64::try_from(ours).unwrap_or(not_before).clamp(not_before, not_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn late_samples_give_an_exact_offset() {
        let mut offset = ClockOffset::new();
        let mut off = 0;
        for number in 0..200_u64 {
            let card = 3 * MS * number;
            let at = 5_000 * MS + card;
            // Seen up to a millisecond late; submitted up to half a millisecond early.
            let (early, late) = (number * 7919 % 500_000, number * 104_729 % MS);
            off = offset.reached(card.cast_signed(), at - early, at + late).abs_diff(at);
        }
        assert!(off < 5_000, "{off} ns");
    }

    #[test]
    fn changed_clock_resets_the_offset() {
        let mut offset = ClockOffset::new();
        offset.reached(0, 10 * MS, 11 * MS);
        assert_eq!(offset.reached(500 * MS.cast_signed(), 12 * MS, 13 * MS), 12 * MS + MS / 2);
        assert_eq!(offset.reached(i64::MAX, 14 * MS, 14 * MS), 14 * MS);
        assert_eq!(offset.reached(i64::MIN, 14 * MS, 14 * MS), 14 * MS);
    }

    proptest! {
        #[test]
        fn offset_stays_within_each_sample(looks in prop::collection::vec(any::<(i64, u64, u64)>(), 1..20)) {
            let mut offset = ClockOffset::new();
            for (card, one, other) in looks {
                let told = offset.reached(card, one.min(other), one.max(other));
                prop_assert!((one.min(other)..=one.max(other)).contains(&told));
            }
        }
    }
}
