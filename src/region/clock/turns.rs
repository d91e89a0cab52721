//! What a card's time costs a process that is served in turns with others.
//!
//! ```text
//!  card   ──others──┬──own slice──┬──others──┬──own slice──┬──others──
//!  cost             │  all of it  │  nothing │  all of it  │
//! ```
//!
//! Markers tell when the card came to work that waited for it. From then on all time is the process's own until its slice is
//! over, then nothing while the others have their turns, which are as long as their [weight](super::weight) says. So a kernel
//! that is short costs what it takes, however long it had to wait, and beside it who always has work pays for nearly all of
//! the card. Later turns are only as well known as their length; on average they cost the process's part of the time.

use super::{FULL_WEIGHT, Reading, SAMPLE_PERIOD_NS, TIME_SLICE_NS};

#[cfg(all(test, not(loom)))]
mod tests;

/// The meter of one process on one card.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    /// From when to when the process had work, short breaks aside and as far as it has looked; and the same of the time before.
    busy_ns: [(u64, u64); 2],
    /// The process's weight at the last two samples while it had work: the page may know the one or the other.
    own: [u32; 2],
    /// The others' weight at the last sample, and at the one before.
    others: [u32; 2],
    /// What the time since the card came to the process's work would cost on average, and what it has cost.
    mean_ns: u64,
    charged_ns: u64,
}

/// The [`weight`](super::weight)s of a process and of all processes of its container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// The process's.
    pub own: u32,
    /// The sum of all, its own included.
    pub container: u32,
}

// === impl Turns ===

impl Turns {
    /// Without a past.
    pub const fn new() -> Self {
        Self { busy_ns: [(0, 0); 2], own: [0; 2], others: [0; 2], mean_ns: 0, charged_ns: 0 }
    }

    /// The process begins to have work.
    pub fn begin(&mut self, now_ns: u64, reading: Option<&Reading>, weights: Weights) {
        let (_, until_ns) = self.busy_ns[0];
        if now_ns.saturating_sub(until_ns) > SAMPLE_PERIOD_NS {
            self.busy_ns = [(now_ns, now_ns), self.busy_ns[0]];
        }
        self.busy_ns[0].1 = now_ns;
        self.sample(now_ns, reading, weights);
        self.others = [self.others[0]; 2];
    }

    /// The card has come to work of the process that had to wait for it.
    pub fn begin_slice(&mut self) {
        (self.mean_ns, self.charged_ns) = (0, 0);
    }

    /// Takes into account who has work now, by the page as it was just read. To be called each millisecond or so while the
    /// process has work. Who isn't on the page isn't there.
    pub fn sample(&mut self, now_ns: u64, reading: Option<&Reading>, weights: Weights) {
        if weights.own > 0 {
            (self.own, self.busy_ns[0].1) = ([weights.own, self.own[0]], now_ns);
        }
        let in_container = weights.container.saturating_sub(weights.own);
        let on_card = reading.filter(|reading| !reading.is_stale(now_ns)).and_then(|Reading { heartbeat_ns, busy }| {
            // Whether the page counts this process.
            let is_counted = self.busy_ns.iter().any(|(from, to)| (from..=to).contains(&heartbeat_ns));
            match (is_counted, busy.tenants) {
                (false, _) => Some(busy.weight),
                (true, 0 | 1) => None,
                (true, _) => Some(busy.weight.saturating_sub(self.own[0].max(self.own[1]))),
            }
        });
        self.others = [on_card.unwrap_or_default().max(in_container), self.others[0]];
    }

    /// How long work that is estimated to take so long takes beside the others.
    pub fn stretched_ns(&self, in_flight_ns: u64) -> u64 {
        let full = u64::from(FULL_WEIGHT);
        part(in_flight_ns, full + u64::from(self.others[0]), full)
    }

    /// Charges so much time, up to about now, in which the process had work that the card had come to; what it costs, at most
    /// that long.
    pub fn charge(&mut self, time_ns: u64) -> u64 {
        let full = u64::from(FULL_WEIGHT);
        let others = u64::midpoint(self.others[0].into(), self.others[1].into());
        self.mean_ns = self.mean_ns.saturating_add(part(time_ns, full, full + others));
        let in_turn_ns = self.mean_ns % TIME_SLICE_NS;
        let of_turn_ns = part(in_turn_ns, full + others, full).min(TIME_SLICE_NS);
        let due_ns = (self.mean_ns - in_turn_ns).saturating_add(of_turn_ns);
        let cost_ns = due_ns.saturating_sub(self.charged_ns).min(time_ns);
        self.charged_ns = self.charged_ns.saturating_add(cost_ns);
        cost_ns
    }
}

/// `of` parts of `all` that a time has.
fn part(time_ns: u64, of: u64, all: u64) -> u64 {
    let part = (u128::from(time_ns) * u128::from(of)).checked_div(all.into()).unwrap_or_default();
    u64::try_from(part).unwrap_or(u64::MAX)
}
