//! GPU time: a token bucket per container and card. The share refills it, measured time is debited, below zero if need be:
//! the counterpart of cgroup's `cpu.max` for a card.
//!
//! Work is admitted by estimate and charged by measurement. What was used too much is a debt that later refills repay, so
//! the share is exact in the long run however wrong an estimate was.
//!
//! ```text
//!  balance ──────── burst: 50 ms of the share          idle time is not saved up for a longer burst
//!     │      ────── 5 ms, at most 0.9 of the burst     a shut gate reopens: launches go in batches, not one by one
//!     │      ────── what is in flight, by estimate     an open gate shuts
//!     ▼      ────── 0, debts below
//! ```
//!
//! Times are nanoseconds of `CLOCK_MONOTONIC`; none of them is trusted to go forward.

use crate::layout::Card;
use crate::sync::Ordering;

#[cfg(all(test, not(loom)))]
mod tests;

/// Refill granularity, so that nothing is lost by rounding: a step adds as many nanoseconds as the share has parts of
/// 10 000. It also keeps most launches from writing the line at all.
const REFILL_STEP_NS: u64 = 10_000;
/// The burst: how much unused time is kept, of a whole card.
const BURST_NS: u64 = 50_000_000;
/// The balance at which a shut gate reopens.
const REOPEN_NS: u64 = 5_000_000;
/// A last refill this far in the future means that the clock jumped, not that it was read late.
const CLOCK_JUMP_NS: u64 = 1_000_000_000;

/// A container's part of a card's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

/// What a process may do with a launch on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Launch.
    Open,
    /// Launch this one, and ask again: it is longer than a batch, so there is nothing to gather, nothing is in flight, and
    /// there is time left. Shorter ones gather even then: a card that is given one kernel at a time is idle in between.
    Single,
    /// Wait.
    Shut,
}

/// What a launch takes on average, by what launches took before. For one process and kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// 0: nothing was measured.
    ns: u64,
}

// === impl Share ===

impl Share {
    /// The whole card.
    pub const WHOLE: Self = Self(10_000);

    /// So many parts in 10 000 of the card's time; more than all is all.
    pub const fn from_parts(parts: u32) -> Self {
        if parts > Self::WHOLE.0 { Self::WHOLE } else { Self(parts) }
    }

    /// Parts in 10 000.
    pub const fn parts(self) -> u32 {
        self.0
    }

    /// The whole card: nothing is accounted, and no gate shuts.
    pub const fn is_whole(self) -> bool {
        self.0 >= Self::WHOLE.0
    }

    /// The share's part of a duration, ns.
    pub const fn of_ns(self, ns: u64) -> u64 {
        // Split, because their product may not fit.
        let whole = Self::WHOLE.0 as u64;
        let parts = self.0 as u64;
        ns / whole * parts + ns % whole * parts / whole
    }

    /// The most unused time that is kept, ns.
    pub const fn burst_ns(self) -> i64 {
        self.of_ns(BURST_NS).cast_signed()
    }

    /// The balance at which a shut gate reopens, ns.
    pub const fn reopen_ns(self) -> i64 {
        let most = self.burst_ns() / 10 * 9;
        if most < REOPEN_NS.cast_signed() { most } else { REOPEN_NS.cast_signed() }
    }
}

// === impl Card ===

impl Card {
    /// Adds what the share has earned since the last refill. Any process may do so at any time; each moment is added once.
    pub fn refill(&self, now_ns: u64, share: Share) {
        if share.is_whole() {
            return;
        }
        let last = self.refilled_at_ns.load(Ordering::Acquire);
        let Some(since) = now_ns.checked_sub(last) else {
            if last - now_ns > CLOCK_JUMP_NS {
                let _lost = self.refilled_at_ns.compare_exchange(last, now_ns, Ordering::AcqRel, Ordering::Relaxed);
            }
            return;
        };
        let steps = since / REFILL_STEP_NS;
        let next = last + steps * REFILL_STEP_NS;
        // Whoever moves the time on adds what it brought; who loses leaves the rest to the next refill.
        if steps == 0 || self.refilled_at_ns.compare_exchange(last, next, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        let cap = share.burst_ns();
        let earned = i64::try_from(steps.saturating_mul(u64::from(share.parts()))).unwrap_or(i64::MAX);
        self.change(|balance| balance.saturating_add(earned).min(cap));
    }

    /// Debits what work took, by measurement and by the clock page.
    pub fn debit(&self, ns: u64) {
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        self.change(|balance| balance.saturating_sub(ns));
    }

    /// The balance, ns; below zero it is a debt.
    pub fn balance_ns(&self) -> i64 {
        self.balance_ns.load(Ordering::Acquire)
    }

    /// Whether work that is estimated to take `estimate_ns` may be launched. `before` is what this process was told last, at
    /// first `Open`; `in_flight_ns` what launched work of all processes of the container is estimated to take yet.
    ///
    /// No work waits longer after other work than that one's length and a batch are worth, by the share.
    pub fn gate(&self, before: Gate, estimate_ns: u64, in_flight_ns: u64, share: Share) -> Gate {
        if share.is_whole() {
            return Gate::Open;
        }
        let balance = self.balance_ns();
        let available = balance.saturating_sub(i64::try_from(in_flight_ns).unwrap_or(i64::MAX));
        let batch = share.reopen_ns().max(1);
        let least = if before == Gate::Open { 1 } else { batch };
        if available >= least {
            Gate::Open
        } else if in_flight_ns == 0 && balance > 0 && estimate_ns >= batch.cast_unsigned() {
            Gate::Single
        } else {
            Gate::Shut
        }
    }

    fn change(&self, to: impl Fn(i64) -> i64) {
        let _always_done =
            self.balance_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, |balance| Some(to(balance)));
    }
}

// === impl Estimate ===

impl Estimate {
    /// Before anything was measured. It may take a thousandth of a millisecond or minutes.
    pub const UNKNOWN: Self = Self { ns: 0 };
    /// What it counts as meanwhile.
    const GUESS_NS: u64 = 1_000_000;
    /// Nothing is estimated to take longer, 13 days; it keeps the sums small.
    const MOST_NS: u64 = 1 << 50;

    /// The estimate that was [kept](Estimate::kept) as a number, or so many nanoseconds.
    pub const fn from_kept(kept: u64) -> Self {
        Self { ns: if kept > Self::MOST_NS { Self::MOST_NS } else { kept } }
    }

    /// The estimate as a number; 0 if nothing was measured.
    pub const fn kept(self) -> u64 {
        self.ns
    }

    /// Whether nothing was measured.
    pub const fn is_unknown(self) -> bool {
        self.ns == 0
    }

    /// Estimated duration of a launch, ns.
    pub const fn ns(self) -> u64 {
        if self.is_unknown() { Self::GUESS_NS } else { self.ns }
    }

    /// What so many of them take.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self::from_kept(self.ns.saturating_mul(count))
    }

    /// Takes into account, to three tenths, that `launches` took `busy_ns` together. Work that turns out to take longer than was
    /// guessed is believed at once: what follows it may be as long, and much of that must not be let through.
    pub fn observe(&mut self, busy_ns: u64, launches: u64) {
        let Some(each) = busy_ns.checked_div(launches) else { return };
        let each = each.min(Self::MOST_NS);
        let mean = (7 * self.ns() + 3 * each) / 10;
        self.ns = if self.is_unknown() { mean.max(each) } else { mean.max(1) };
    }
}
