//! Virtual time of the past.

use super::Reading;

/// Points that are kept. The further back, the further apart: with a point each millisecond, the time ten seconds ago is
/// known to some tenths of a second, and all times between to the same part of their age.
const POINTS: usize = 128;

/// What virtual time was when a process looked, so that work which began long ago can be paid for at its end. For one card.
#[derive(Clone, Debug)]
pub struct History {
    points: [Point; POINTS],
    length: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at_ns: u64,
    virtual_ns: u64,
}

// === impl History ===

impl History {
    /// Without a past: time counts in full.
    pub const fn new() -> Self {
        Self { points: [Point { at_ns: 0, virtual_ns: 0 }; POINTS], length: 0 }
    }

    /// Remembers the virtual time now, by the page as it was just read; without one time counts in full. To be called each
    /// millisecond or so while work is in flight, and at its beginning.
    pub fn record(&mut self, now_ns: u64, reading: Option<&Reading>) {
        let last = self.known().last().copied().unwrap_or(Point { at_ns: now_ns, virtual_ns: 0 });
        if now_ns < last.at_ns {
            return;
        }
        let virtual_ns = match reading {
            Some(reading) => reading.virtual_at(now_ns),
            None => last.virtual_ns.saturating_add(now_ns - last.at_ns),
        };
        if self.length == POINTS {
            self.drop_densest(now_ns);
        }
        if let Some(point) = self.points.get_mut(self.length) {
            *point = Point { at_ns: now_ns, virtual_ns };
            self.length += 1;
        }
    }

    /// What a span of work from `from_ns` to `to_ns` costs, ns: never more than its length. Time that wasn't looked at
    /// counts in full.
    ///
    /// A span begins when work was launched on an idle queue, not when the card came to it: waiting for one's turn is part
    /// of being served in turns, and without it the cost is too low by half a turn of the card.
    pub fn cost(&self, from_ns: u64, to_ns: u64) -> u64 {
        let length = to_ns.saturating_sub(from_ns);
        // Virtual time goes back a little where others are seen to have come, and where the page was made anew.
        let cost = u64::try_from(self.at(to_ns) - self.at(from_ns)).unwrap_or(0);
        cost.min(length)
    }

    fn known(&self) -> &[Point] {
        self.points.get(..self.length).unwrap_or_default()
    }

    /// Virtual time at `t_ns`; before the first point it may lie below zero.
    fn at(&self, t_ns: u64) -> i128 {
        let known = self.known();
        let after = known.partition_point(|point| point.at_ns <= t_ns);
        let of = |point: &Point| (i128::from(point.at_ns), i128::from(point.virtual_ns));
        let t = i128::from(t_ns);
        match (after.checked_sub(1).and_then(|before| known.get(before)).map(of), known.get(after).map(of)) {
            (Some((a, va)), Some((b, vb))) => {
                // At most as fast as time itself, so that the product fits.
                let (gap, gain, since) = (b - a, (vb - va).clamp(0, b - a), t - a);
                let part = (gain.cast_unsigned() * since.cast_unsigned()).checked_div(gap.cast_unsigned());
                va + part.unwrap_or_default().cast_signed()
            }
            (Some((a, v)), None) | (None, Some((a, v))) => v + (t - a),
            (None, None) => t,
        }
    }

    /// Forgets the point whose neighbours are closest, by its age.
    fn drop_densest(&mut self, now_ns: u64) {
        let crowding = |points: &[Point]| {
            let [before, point, after] = points else { return u128::MAX };
            let age = u128::from(now_ns.saturating_sub(point.at_ns)) + 1;
            (u128::from(after.at_ns - before.at_ns) << 32) / age
        };
        let triples = self.points.windows(3).map(crowding).enumerate();
        let Some((before, _)) = triples.min_by_key(|(_, crowding)| *crowding) else { return };
        let points = self.points;
        let left = points.iter().take(before + 1).chain(points.iter().skip(before + 2));
        self.points.iter_mut().zip(left).for_each(|(point, kept)| *point = *kept);
        self.length = POINTS - 1;
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}
