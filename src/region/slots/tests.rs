use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::accounts::{MemoryLimit, Reservation};
use crate::owned::Owned;

/// The kernel's part, played: whose lock each slot has, and who lives.
#[derive(Default)]
struct Kernel {
    locks: RefCell<BTreeMap<usize, u32>>,
    alive: RefCell<BTreeSet<(u32, u64)>>,
}

/// The kernel as one process sees it.
struct Process<'a> {
    kernel: &'a Kernel,
    pid: u32,
}

// === impl Kernel ===

impl Kernel {
    fn start(&self, pid: u32) -> Process<'_> {
        self.alive.borrow_mut().insert((pid, 1000 + u64::from(pid)));
        Process { kernel: self, pid }
    }

    fn kill(&self, pid: u32) {
        self.alive.borrow_mut().retain(|(alive, _)| *alive != pid);
        self.close_descriptors(pid);
    }

    /// Which drops all locks, on exec and by programs that close whatever they find.
    fn close_descriptors(&self, pid: u32) {
        self.locks.borrow_mut().retain(|_, owner| *owner != pid);
    }
}

// === impl Process ===

impl Locks for Process<'_> {
    fn try_lock(&self, slot: usize) -> bool {
        *self.kernel.locks.borrow_mut().entry(slot).or_insert(self.pid) == self.pid
    }

    fn unlock(&self, slot: usize) {
        let unlocked = self.kernel.locks.borrow_mut().remove(&slot);
        assert_eq!(unlocked, Some(self.pid), "only what is one's own");
    }

    fn is_alive(&self, pid: u32, started: u64) -> bool {
        self.kernel.alive.borrow().contains(&(pid, started))
    }
}

fn owner(pid: u32) -> Owner {
    Owner { pid, started: 1000 + u64::from(pid), nonce: 7, comm: *b"train.py\0\0\0\0\0\0\0\0" }
}

fn hold(owned: &Owned, slot: usize, bytes: u64) {
    let account = owned.region().accounts(0).and_then(|accounts| accounts.account(slot)).expect("a slot");
    assert_eq!(account.reserve(bytes, MemoryLimit::all_physical(u64::MAX), || ()), Reservation::Reserved);
}

#[test]
fn each_process_claims_its_own_slot_until_full() {
    let (owned, kernel) = (Owned::new(1, 3), Kernel::default());
    let region = owned.region();
    let claims: Vec<_> = (1..=4).map(|pid| region.claim(&kernel.start(pid), &owner(pid))).collect();
    assert_eq!(claims, [Ok(0), Ok(1), Ok(2), Err(Full)]);
    assert_eq!(region.owner(1), Some(owner(2)));
    kernel.kill(2);
    assert_eq!(region.claim(&kernel.start(5), &owner(5)), Ok(1), "a dead one's slot is as good as a free one");
}

#[test]
fn reaping_frees_dead_slots_and_leaves_live_ones() {
    let (owned, kernel) = (Owned::new(2, 4), Kernel::default());
    let region = owned.region();
    for pid in 1..=3 {
        let slot = region.claim(&kernel.start(pid), &owner(pid)).expect("room");
        hold(&owned, slot, 100);
    }
    let accounts = region.accounts(0).expect("a card");
    accounts.account(1).expect("a slot").launched(5000);
    kernel.kill(2);
    let first = Process { kernel: &kernel, pid: 1 };
    assert_eq!(region.reap(&first, Some(0)), 1);
    assert_eq!((accounts.used(), accounts.in_flight_ns(), region.owner(1)), (200, 0, None));
    assert_eq!(region.reap(&first, Some(0)), 0);
    assert!(kernel.locks.borrow().contains_key(&0), "its own lock wasn't touched");
}

#[test]
fn a_process_that_lost_its_lock_keeps_its_slot() {
    let (owned, kernel) = (Owned::new(1, 2), Kernel::default());
    let region = owned.region();
    assert_eq!(region.claim(&kernel.start(1), &owner(1)), Ok(0));
    hold(&owned, 0, 100);
    kernel.close_descriptors(1);
    let other = kernel.start(2);
    assert_eq!(region.reap(&other, None), 0);
    assert_eq!(region.claim(&other, &owner(2)), Ok(1));
    assert_eq!((region.owner(0), region.accounts(0).expect("a card").used()), (Some(owner(1)), 100));
}

#[test]
fn exec_keeps_the_slot_and_resets_it() {
    let (owned, kernel) = (Owned::new(1, 3), Kernel::default());
    let region = owned.region();
    for pid in [1, 2] {
        let slot = region.claim(&kernel.start(pid), &owner(pid)).expect("room");
        hold(&owned, slot, 100);
    }
    kernel.close_descriptors(2);
    let second = Process { kernel: &kernel, pid: 2 };
    let image = Owner { nonce: 8, comm: *b"python3\0\0\0\0\0\0\0\0\0", ..owner(2) };
    kernel.locks.borrow_mut().insert(1, 99); // somebody who looks at it, and is stopped meanwhile
    assert_eq!(region.claim(&second, &image), Ok(1));
    assert_eq!((region.owner(1), region.accounts(0).expect("a card").used()), (Some(image), 100));
}

#[test]
fn reused_pid_is_another_process() {
    let (owned, kernel) = (Owned::new(1, 2), Kernel::default());
    let region = owned.region();
    assert_eq!(region.claim(&kernel.start(1), &owner(1)), Ok(0));
    hold(&owned, 0, 100);
    kernel.kill(1);
    kernel.alive.borrow_mut().insert((1, 9999));
    let again = Process { kernel: &kernel, pid: 1 };
    assert_eq!(region.claim(&again, &Owner { started: 9999, ..owner(1) }), Ok(0));
    assert_eq!(region.accounts(0).expect("a card").used(), 0);
}

/// What is in the region when a process is killed before its nth access to the world or when its claim is half written.
#[test]
fn half_claimed_slot_is_cleaned_by_the_next_owner() {
    let (owned, kernel) = (Owned::with_high(1, 1, 1), Kernel::default());
    let region = owned.region();
    let half = |state: u32, pid: u32, committed: bool| {
        region.slots[0].pid.store(pid, Ordering::Relaxed);
        region.slots[0].started.store(1000 + u64::from(pid), Ordering::Relaxed);
        region.slots[0].state.store(state, Ordering::Relaxed);
        if committed {
            hold(&owned, 0, 100);
        }
    };
    let states = [
        (FREE, 66, false),    // its identity was being written
        (CLAIMED, 66, true),  // it held memory
        (CLAIMED, 66, false), // it was being reaped, or had just claimed
    ];
    for (pid, (state, dead, committed)) in (1..).zip(states) {
        half(state, dead, committed);
        assert_eq!(region.claim(&kernel.start(pid), &owner(pid)), Ok(0));
        assert_eq!((region.owner(0), region.accounts(0).expect("a card").used()), (Some(owner(pid)), 0));
        kernel.kill(pid);
    }
}

#[test]
fn unclaimed_slots_are_not_scanned() {
    let (owned, kernel) = (Owned::new(1, 1000), Kernel::default());
    let region = owned.region();
    assert_eq!(region.claim(&kernel.start(1), &owner(1)), Ok(0));
    assert_eq!(region.header.high.load(Ordering::Relaxed), 1);
}
