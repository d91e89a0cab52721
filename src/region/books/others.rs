//! What other processes of the container have in flight, remembered for a moment: to add up a thousand lines at each launch
//! takes longer than the launch.
//!
//! **What that lets through.** Between two sums a process launches [`ALLOWED_NS`] or one launch, at most. The last sum of
//! all that found room has seen all that was launched before it; after it each process adds as much as it may without
//! another sum. So together they overdraw the bucket by that for each process that launches just then, once; it is a debt
//! like any other. What was launched and is paid for by now left the bucket, which is looked at each time.

use core::sync::atomic::{AtomicU64, Ordering};

use super::Account;

/// How long a sum is good for, ns.
const AGE_NS: u64 = 50_000;
/// And for how much work of our own, by estimate, ns: a tenth of a batch.
const ALLOWED_NS: u64 = 500_000;

/// Of one process, for one card. Its threads may race: then one of them adds up once more, or is allowed a launch more.
#[derive(Debug, Default)]
pub struct Others {
    /// What they had in flight, ns.
    sum: AtomicU64,
    /// When that was.
    at_ns: AtomicU64,
    /// What may be launched before they are added up again, ns.
    allowed: AtomicU64,
}

// === impl Others ===

impl Others {
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
        let all = account.books().in_flight_ns();
        self.sum.store(all.saturating_sub(own), Ordering::Relaxed);
        self.at_ns.store(now_ns, Ordering::Relaxed);
        self.allowed.store(ALLOWED_NS.saturating_sub(estimate_ns), Ordering::Relaxed);
        all
    }

    /// The next one adds up again.
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
    fn others_are_added_up_again_after_a_moment_and_after_a_tenth_of_a_batch() {
        let owned = Owned::with_high(1, 2, 2);
        let books = owned.region().books(0).expect("a card");
        let (own, other) = (books.account(0).expect("a slot"), books.account(1).expect("a slot"));
        let others = Others::new();
        assert_eq!(others.in_flight_ns(own, NOW, 200_000), 0);
        own.launched(200_000);
        other.launched(7_000_000);
        assert_eq!(others.in_flight_ns(own, NOW + 1000, 200_000), 200_000, "of a moment ago");
        own.launched(200_000);
        assert_eq!(others.in_flight_ns(own, NOW + 2000, 200_000), 7_400_000, "that would be 0.6 ms since the sum");
        other.settled(7_000_000, 7_000_000);
        assert_eq!(others.in_flight_ns(own, NOW + 3000, 10_000), 7_400_000);
        assert_eq!(others.in_flight_ns(own, NOW + 2000 + AGE_NS, 10_000), 7_400_000);
        assert_eq!(others.in_flight_ns(own, NOW + 2001 + AGE_NS, 10_000), 400_000, "it is too old");
        other.launched(1);
        others.forget();
        assert_eq!(others.in_flight_ns(own, NOW + 2002 + AGE_NS, 10_000), 400_001);
        assert_eq!(others.in_flight_ns(own, NOW, 10_000), 400_001, "a clock that went back");
    }

    #[test]
    fn processes_that_launch_at_once_overdraw_by_what_each_may_launch_without_a_sum() {
        const PROCESSES: usize = 8;
        const ROOM_NS: u64 = 5_000_000;
        for estimate_ns in [10_000, 300_000, 1_000_000] {
            let owned = Owned::with_high(1, PROCESSES, 8);
            let books = owned.region().books(0).expect("a card");
            let accounts: [_; PROCESSES] = core::array::from_fn(|slot| books.account(slot).expect("a slot"));
            let others = [const { Others::new() }; PROCESSES];
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
            let over = books.in_flight_ns() - ROOM_NS;
            let most = PROCESSES as u64 * ALLOWED_NS.max(estimate_ns);
            assert!(over <= most, "{over} of {most} ns");
        }
    }
}
