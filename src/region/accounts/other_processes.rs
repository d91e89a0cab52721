//! What other processes of the container have in flight, remembered for a moment: to add up a thousand lines at each launch
//! takes longer than the launch.
//!
//! **What that lets through.** Between two sums a process launches [`ALLOWED_NS`] or one launch, at most. The last sum of
//! all that found room has seen all that was launched before it; after it each process adds as much as it may without
//! another sum. So together they overdraw the bucket by that for each process that launches just then, once; it is a debt
//! like any other. What was launched and is paid for by now left the bucket, which is looked at each time.

use core::sync::atomic::{AtomicU64, Ordering};

use super::Account;

/// How long a cached sum is used, ns.
const AGE_NS: u64 = 50_000;
/// How much estimated work this process may launch on one cached sum, ns: a tenth of what reopens a gate.
const ALLOWED_NS: u64 = 500_000;

/// A process's cache of the sum, for one card. Threads may race: then one of them adds up once more, or is allowed a launch
/// more.
#[derive(Debug, Default)]
pub struct OtherProcesses {
    /// GPU time that the other processes had in flight at the last sum, ns.
    sum: AtomicU64,
    /// The moment of that sum, ns.
    at_ns: AtomicU64,
    /// What may be launched before they are added up again, ns.
    allowed: AtomicU64,
}

// === impl OtherProcesses ===

impl OtherProcesses {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self { sum: AtomicU64::new(0), at_ns: AtomicU64::new(0), allowed: AtomicU64::new(0) }
    }

    /// GPU time that launched work of all processes is estimated to take yet, ns, for one who is about to launch so much
    /// more: what this process launched as of now, the rest as of a moment ago.
    pub fn in_flight_ns(&self, account: Account<'_>, now_ns: u64, estimate_ns: u64) -> u64 {
        let own = account.in_flight_ns();
        let allowed = self.allowed.load(Ordering::Relaxed);
        let age = now_ns.wrapping_sub(self.at_ns.load(Ordering::Relaxed));
        if age <= AGE_NS && estimate_ns <= allowed {
            self.allowed.store(allowed - estimate_ns, Ordering::Relaxed);
            return own.saturating_add(self.sum.load(Ordering::Relaxed));
        }
        let all = account.accounts().in_flight_ns();
        self.sum.store(all.saturating_sub(own), Ordering::Relaxed);
        self.at_ns.store(now_ns, Ordering::Relaxed);
        self.allowed.store(ALLOWED_NS.saturating_sub(estimate_ns), Ordering::Relaxed);
        all
    }

    /// Discards the sum: the next launch adds up again.
    pub fn forget(&self) {
        self.allowed.store(0, Ordering::Relaxed);
        self.at_ns.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owned::Owned;

    const NOW: u64 = 1_000_000_000;

    #[test]
    fn cached_sum_expires_by_age_and_by_launched_work() {
        let owned = Owned::with_high(1, 2, 2);
        let accounts = owned.region().accounts(0).expect("a card");
        let (own, other) = (accounts.account(0).expect("a slot"), accounts.account(1).expect("a slot"));
        let others = OtherProcesses::new();
        assert_eq!(others.in_flight_ns(own, NOW, 200_000), 0);
        own.launched(200_000);
        other.launched(7_000_000);
        assert_eq!(others.in_flight_ns(own, NOW + 1000, 200_000), 200_000, "of a moment ago");
        own.launched(200_000);
        assert_eq!(others.in_flight_ns(own, NOW + 2000, 200_000), 7_400_000, "that would be 0.6 ms since the sum");
        other.completed(7_000_000, 7_000_000);
        assert_eq!(others.in_flight_ns(own, NOW + 3000, 10_000), 7_400_000);
        assert_eq!(others.in_flight_ns(own, NOW + 2000 + AGE_NS, 10_000), 7_400_000);
        assert_eq!(others.in_flight_ns(own, NOW + 2001 + AGE_NS, 10_000), 400_000, "it is too old");
        other.launched(1);
        others.forget();
        assert_eq!(others.in_flight_ns(own, NOW + 2002 + AGE_NS, 10_000), 400_001);
        assert_eq!(others.in_flight_ns(own, NOW, 10_000), 400_001, "a clock that went back");
    }

    #[test]
    fn overdraft_of_simultaneous_launches_is_bounded() {
        const PROCESSES: usize = 8;
        const ROOM_NS: u64 = 5_000_000;
        for estimate_ns in [10_000, 300_000, 1_000_000] {
            let owned = Owned::with_high(1, PROCESSES, 8);
            let card = owned.region().accounts(0).expect("a card");
            let accounts: [_; PROCESSES] = core::array::from_fn(|slot| card.account(slot).expect("a slot"));
            let others = [const { OtherProcesses::new() }; PROCESSES];
            // All within one moment, in turns: nobody sees the others but by a sum.
            let mut launched = true;
            while launched {
                launched = false;
                for (account, others) in accounts.iter().zip(&others) {
                    if others.in_flight_ns(*account, NOW, estimate_ns) < ROOM_NS {
                        account.launched(estimate_ns);
                        launched = true;
                    }
                }
            }
            let over = card.in_flight_ns() - ROOM_NS;
            let most = PROCESSES as u64 * ALLOWED_NS.max(estimate_ns);
            assert!(over <= most, "{over} of {most} ns");
        }
    }
}
