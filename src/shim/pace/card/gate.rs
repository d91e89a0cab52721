//! The gate of a card: whether a launch may go on, and the wait until it may.

use core::sync::atomic::Ordering;

use divvy_region::layout;
use divvy_region::{Account, Estimate, Gate, Region, Share};

use super::Card;
use crate::pace::stream::Stream;
use crate::pace::work::Work;
use crate::pace::{monitor, tracks};
use crate::process::Process;
use crate::sys;
use crate::time;

/// The longest sleep at a shut gate before it is checked again: other processes of the container can't wake this one.
const MAX_SLEEP_NS: u64 = 5_000_000;
/// The shortest sleep at a shut gate: a shorter one isn't worth the system call.
const MIN_SLEEP_NS: u64 = 50_000;
/// How long work is in flight and none of it completed before a launch goes on nevertheless: that work may wait for it, or for
/// what its thread launches next. Twice as long after each such launch on debt, until a gate has opened; and five times as long
/// for a launch behind work of its own stream, which can't wait for it.
const PATIENCE_NS: u64 = 200_000_000;
const MAX_PATIENCE_NS: u64 = 1_600_000_000;
/// The longest sleep at the gate of a card that is coupled with others.
const COUPLED_SLEEP_NS: u64 = 500_000;
/// The shortest sleep between two polls for completed work.
const MIN_POLL_NS: u64 = 200_000;
/// How much longer a process that has just come to a shut gate sleeps than one that has waited 100 times as long: the one
/// that has waited longest is served first.
const YIELD_NS: u64 = 500_000;
/// After so long at a shut gate the slots of dead processes, whose work counts as in flight, are reaped.
const REAP_AFTER_NS: u64 = 20_000_000;
/// The most work in flight on a card that is lent whole while others are idle: what they wait for when they come back.
const MAX_BORROWED_NS: u64 = 20_000_000;

/// Decides on a launch. A container that is lent the whole card keeps little in flight, so that one that wants its share back
/// does not wait for long.
#[inline]
fn gate(bucket: &layout::Card, before: Gate, estimate: Estimate, in_flight_ns: u64, share: Share) -> Gate {
    if !share.is_whole() {
        return bucket.gate(before, estimate.ns(), in_flight_ns, share);
    }
    let most = if before == Gate::Shut { MAX_BORROWED_NS / 2 } else { MAX_BORROWED_NS };
    if in_flight_ns < most { Gate::Open } else { Gate::Shut }
}

/// The time until refills alone open the gate, ns. Work in flight may be cheaper than estimated, or be done: then the thread
/// that charges for it wakes this one.
fn refill_ns(bucket: &layout::Card, estimate: Estimate, in_flight_ns: u64, share: Share) -> u64 {
    let batch = share.reopen_ns();
    let wanted = if in_flight_ns == 0 && estimate.ns() >= batch.cast_unsigned() { 1 } else { batch };
    let available = bucket.balance_ns().saturating_sub_unsigned(in_flight_ns);
    let missing = wanted.saturating_sub(available).max(0).cast_unsigned();
    let by_share = missing.saturating_mul(10_000).checked_div(share.parts().into());
    by_share.filter(|_| !share.is_whole()).unwrap_or(MAX_SLEEP_NS)
}

/// How much later than possible a process that has waited so long tries the gate. All processes of a container know when it
/// opens, and the first takes all that there is: that should be the one that has waited longest.
fn yield_ns(account: Account<'_>, waited_ns: u64) -> u64 {
    if account.accounts().has_other_processes() { YIELD_NS.saturating_sub(waited_ns / 100) } else { 0 }
}

// === impl Card ===

impl Card {
    /// Whether a launch may go on, with what is in the container's bucket.
    #[inline]
    pub(in crate::pace) fn is_open(
        &self,
        (region, position): (Region<'_>, usize),
        account: Account<'_>,
        estimate: Estimate,
        share: Share,
        now_ns: u64,
    ) -> bool {
        let Some(bucket) = region.card(position) else { return false };
        if estimate.is_unknown() && self.has_probe.load(Ordering::Relaxed) {
            return false;
        }
        let before = match self.gate.load(Ordering::Relaxed) {
            gate if gate == Gate::Open as u8 => Gate::Open,
            gate if gate == Gate::Single as u8 => Gate::Single,
            _ => Gate::Shut,
        };
        // Many wait for a gate to open, and see it at once: then all count at once what the others launch.
        let in_flight_ns = match before {
            Gate::Open => self.others.in_flight_ns(account, now_ns, estimate.ns()),
            Gate::Single | Gate::Shut => account.accounts().in_flight_ns(),
        };
        let mut gate = gate(bucket, before, estimate, in_flight_ns, share);
        if region.is_coupled(now_ns) {
            gate = region.coupled_gate(position, gate, before, share, now_ns);
        }
        if gate != before {
            self.gate.store(gate as u8, Ordering::Relaxed);
            self.others.forget();
        }
        gate != Gate::Shut && !(estimate.is_unknown() && self.has_probe.swap(true, Ordering::Relaxed))
    }

    /// Holds a launch until the gate opens; the estimate of it by then.
    #[cold]
    pub(in crate::pace) fn wait(
        &self,
        process: &'static Process,
        position: usize,
        account: Account<'_>,
        (stream, work): (&Stream, Work),
    ) -> Estimate {
        let region = process.region();
        let Some(bucket) = region.card(position) else { return self.estimate(work) };
        let began = time::now();
        let mut now = began;
        let mut reaped = began;
        let mut progressed = began;
        let mut completed = self.completed.load(Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let estimate = loop {
            process.refresh(now);
            let expected_ns = monitor::poll_for_waiter(process, now);
            let wakeups = self.wakeups.load(Ordering::Acquire);
            let share = self.allotment(process, position, now).share;
            bucket.refill(now, share);
            let estimate = self.estimate(work);
            if self.is_open((region, position), account, estimate, share, now) {
                self.patience_ns.store(0, Ordering::Relaxed);
                break estimate;
            }
            let in_flight_ns = account.accounts().in_flight_ns();
            let completed_by_now = self.completed.load(Ordering::Relaxed);
            if in_flight_ns == 0 || completed_by_now != completed {
                (progressed, completed) = (now, completed_by_now);
            }
            if self.may_be_awaited(stream, now.saturating_sub(progressed), bucket.balance_ns() < 0) {
                break estimate;
            }
            account.hold_until(now.saturating_add(2 * MAX_SLEEP_NS));
            let waited = now.saturating_sub(began);
            let pause = if estimate.is_unknown() && self.has_probe.load(Ordering::Relaxed) {
                waited / 2 // what goes alone is done soon, or is long
            } else {
                let refill = refill_ns(bucket, estimate, in_flight_ns, share);
                refill.saturating_add(yield_ns(account, waited))
            };
            let done_ns = match self.remaining_ns(process, position) {
                0 => u64::MAX,
                remaining_ns => remaining_ns.max(expected_ns).max(MIN_POLL_NS),
            };
            let pause = pause.min(done_ns);
            // What the gate waits for then is on other cards too.
            let pause = if region.is_coupled(now) { pause.min(COUPLED_SLEEP_NS) } else { pause };
            monitor::waiter_until(now.saturating_add(pause.min(REAP_AFTER_NS)));
            sys::wait(&self.wakeups, wakeups, pause.clamp(MIN_SLEEP_NS, MAX_SLEEP_NS));
            now = time::now();
            if now.saturating_sub(reaped) > REAP_AFTER_NS {
                process.reap();
                reaped = now;
            }
        };
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            account.hold_until(0);
        }
        monitor::waiter_left();
        bucket.throttled_ns.add(now.saturating_sub(began));
        estimate
    }

    /// Whether a launch goes on because work in flight may wait for it, of which none was completed for so long.
    fn may_be_awaited(&self, stream: &Stream, stalled_ns: u64, is_in_debt: bool) -> bool {
        let patience_ns = self.patience_ns.load(Ordering::Relaxed).clamp(PATIENCE_NS, MAX_PATIENCE_NS);
        let is_behind_own = || tracks::find(stream).is_some_and(|entry| !entry.is_idle());
        if stalled_ns < patience_ns || stalled_ns < 5 * patience_ns && is_behind_own() {
            return false;
        }
        if is_in_debt {
            self.patience_ns.store(2 * patience_ns, Ordering::Relaxed);
        }
        self.has_waited.store(true, Ordering::Relaxed);
        true
    }

    /// Wakes those who wait, if the gate would open for them.
    pub(in crate::pace) fn wake_waiting(&self, process: &'static Process, position: usize, now_ns: u64) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (Some(bucket), Some(account)) = (process.region().card(position), process.account(position)) else {
            return;
        };
        let share = self.allotment(process, position, now_ns).share;
        bucket.refill(now_ns, share);
        if gate(bucket, Gate::Shut, self.estimates().kernel, account.accounts().in_flight_ns(), share) != Gate::Shut {
            self.wakeups.fetch_add(1, Ordering::Release);
            sys::wake(&self.wakeups);
        }
    }
}
