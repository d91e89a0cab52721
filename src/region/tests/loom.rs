//! The protocols under every order that the memory model allows, with few threads:
//! `RUSTFLAGS="--cfg loom" cargo test -p divvy-region --release --test loom`
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used, reason = "models")]

use divvy_region::clock::{Busy, Page, Writer};
use divvy_region::owned::Owned;
use divvy_region::slots::{Locks, Owner};
use divvy_region::{Account, MemoryLimit, Reservation, Share};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

const OUT_OF_MEMORY: fn(u64) -> Reservation = |used| Reservation::OutOfMemory { used };

/// What the kernel knows: who holds the locks of two slots, and whose processes are dead.
struct Kernel {
    locked: [AtomicBool; 2],
    dead: Vec<u32>,
}

impl Kernel {
    fn new(dead: &[u32]) -> Self {
        Self { locked: [AtomicBool::new(false), AtomicBool::new(false)], dead: dead.to_vec() }
    }
}

impl Locks for Kernel {
    fn try_lock(&self, slot: usize) -> bool {
        !self.locked[slot].swap(true, Ordering::AcqRel)
    }

    fn unlock(&self, slot: usize) {
        self.locked[slot].store(false, Ordering::Release);
    }

    fn is_alive(&self, pid: u32, _started: u64) -> bool {
        !self.dead.contains(&pid)
    }
}

fn owner(pid: u32) -> Owner {
    Owner { pid, started: 1, nonce: u64::from(pid), comm: [0; 16] }
}

fn reserve(owned: &Owned, slot: usize, limit: u64) -> Reservation {
    account(owned, slot).reserve(1, MemoryLimit::all_physical(limit), thread::yield_now)
}

fn account(owned: &Owned, slot: usize) -> Account<'_> {
    owned.region().accounts(0).unwrap().account(slot).unwrap()
}

fn used(owned: &Owned) -> u64 {
    owned.region().accounts(0).unwrap().used()
}

/// Both at the same time, and what they return. Neither runs on the thread that set them up: loom then misses orders.
fn both<T: 'static>(a: impl FnOnce() -> T + 'static, b: impl FnOnce() -> T + 'static) -> (T, T) {
    let (a, b) = (thread::spawn(a), thread::spawn(b));
    (a.join().unwrap(), b.join().unwrap())
}

#[test]
fn last_byte_goes_to_at_most_one_process() {
    loom::model(|| {
        let owned = Arc::new(Owned::with_high(1, 2, 2));
        let first = Arc::clone(&owned);
        let second = Arc::clone(&owned);
        let got = both(move || reserve(&first, 0, 1), move || reserve(&second, 1, 1));
        assert_ne!(got, (Reservation::Reserved, Reservation::Reserved));
        assert!(used(&owned) <= 1);
    });
}

#[test]
fn last_byte_goes_to_at_most_one_thread() {
    loom::model(|| {
        let owned = Arc::new(Owned::with_high(1, 1, 1));
        let first = Arc::clone(&owned);
        let second = Arc::clone(&owned);
        let got = both(move || reserve(&first, 0, 1), move || reserve(&second, 0, 1));
        assert_ne!(got, (Reservation::Reserved, Reservation::Reserved));
        assert!(used(&owned) <= 1);
    });
}

#[test]
fn released_memory_can_be_reserved_only_afterwards() {
    loom::model(|| {
        let owned = Arc::new(Owned::with_high(1, 2, 2));
        assert_eq!(reserve(&owned, 0, 1), Reservation::Reserved);
        let first = Arc::clone(&owned);
        let second = Arc::clone(&owned);
        // Whether the driver has the byte out.
        let out = Arc::new(AtomicBool::new(true));
        let freed = Arc::clone(&out);
        let (_, got) = both(
            move || {
                freed.store(false, Ordering::Relaxed);
                account(&first, 0).release(1);
                None
            },
            move || {
                let got = reserve(&second, 1, 1);
                if got == Reservation::Reserved {
                    assert!(!out.load(Ordering::Relaxed), "the driver freed it before");
                }
                Some(got)
            },
        );
        assert!(got == Some(Reservation::Reserved) || got == Some(OUT_OF_MEMORY(1)) || got == Some(OUT_OF_MEMORY(0)));
        assert_eq!(used(&owned), u64::from(got == Some(Reservation::Reserved)));
    });
}

/// The physical byte is held by a process that allocates and frees managed memory meanwhile.
fn physical_byte_is_had_once(begins_with_managed: bool) {
    const LIMIT: MemoryLimit = MemoryLimit { total: 3, physical: 1 };
    loom::model(move || {
        let owned = Arc::new(Owned::with_high(1, 2, 2));
        assert_eq!(account(&owned, 0).reserve(1, LIMIT, thread::yield_now), Reservation::Reserved);
        let reserve_managed = |owned: &Owned| {
            let got = account(owned, 0).reserve_managed(1, LIMIT, thread::yield_now);
            assert!(got == Reservation::Reserved || got == OUT_OF_MEMORY(2));
            got == Reservation::Reserved
        };
        let is_held = begins_with_managed && reserve_managed(&owned);
        let first = Arc::clone(&owned);
        let second = Arc::clone(&owned);
        let (_, got) = both(
            move || {
                if is_held {
                    account(&first, 0).release_managed(1);
                } else if reserve_managed(&first) {
                    account(&first, 0).release_managed(1);
                }
                None
            },
            move || Some(account(&second, 1).reserve(1, LIMIT, thread::yield_now)),
        );
        assert!(matches!(got, Some(Reservation::OutOfMemory { .. })), "{got:?}");
        assert_eq!(used(&owned), 1);
    });
}

#[test]
fn managed_memory_that_comes_and_goes_frees_no_physical_byte() {
    physical_byte_is_had_once(false);
}

#[test]
fn managed_memory_that_is_freed_frees_no_physical_byte() {
    physical_byte_is_had_once(true);
}

#[test]
fn memory_of_a_dead_process_is_free_once_reaped() {
    loom::model(|| {
        let owned = Arc::new(Owned::new(1, 2));
        let kernel = Arc::new(Kernel::new(&[66]));
        let region = owned.region();
        region.claim(&*kernel, &owner(66)).unwrap();
        kernel.unlock(0);
        region.claim(&*kernel, &owner(2)).ok();
        // The dead one's slot was reused at once; another dies in the middle of a reservation.
        region.claim(&*kernel, &owner(66)).ok();
        owned.leave_tentative(1, 1);
        kernel.unlock(1);
        let reaper = Arc::clone(&owned);
        let second = Arc::clone(&owned);
        let locks = Arc::clone(&kernel);
        let (_, got) = both(
            move || {
                assert_eq!(reaper.region().reap(&*locks, Some(0)), 1);
                None
            },
            move || Some(reserve(&second, 0, 1)),
        );
        assert!(matches!(got, Some(Reservation::Reserved | Reservation::OutOfMemory { .. })));
        if got != Some(Reservation::Reserved) {
            assert_eq!(reserve(&owned, 0, 1), Reservation::Reserved);
        }
        assert_eq!((used(&owned), owned.region().owner(1)), (1, None));
    });
}

#[test]
fn concurrent_claims_get_different_slots() {
    // All orders of so many steps would take hours: here a thread is interrupted twice at most.
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(2);
    bounded.check(|| {
        let owned = Arc::new(Owned::new(1, 2));
        let kernel = Arc::new(Kernel::new(&[]));
        let start = |pid: u32| {
            let (owned, kernel) = (Arc::clone(&owned), Arc::clone(&kernel));
            move || {
                let slot = owned.region().claim(&*kernel, &owner(pid)).unwrap();
                (slot, reserve(&owned, slot, 1))
            }
        };
        let (first, second) = both(start(1), start(2));
        assert_ne!(first.0, second.0);
        assert_ne!((first.1, second.1), (Reservation::Reserved, Reservation::Reserved));
        assert_eq!(owned.region().owner(first.0).unwrap().pid, 1);
    });
}

#[test]
fn reclaimed_slot_is_not_reaped_again() {
    loom::model(|| {
        let owned = Arc::new(Owned::new(1, 1));
        let kernel = Arc::new(Kernel::new(&[66]));
        owned.region().claim(&*kernel, &owner(66)).unwrap();
        owned.leave_tentative(0, 1);
        kernel.unlock(0);
        let claimer = Arc::clone(&owned);
        let reaper = Arc::clone(&owned);
        let (locks, others) = (Arc::clone(&kernel), kernel);
        let (slot, _) = both(
            move || {
                let slot = claimer.region().claim(&*locks, &owner(1)).ok();
                slot.map(|slot| assert_eq!(reserve(&claimer, slot, 1), Reservation::Reserved))
            },
            move || {
                reaper.region().reap(&*others, None);
                None
            },
        );
        // While somebody looks at the only slot, there is none.
        assert_eq!(used(&owned), u64::from(slot.is_some()));
        assert_eq!(owned.region().owner(0).map(|owner| owner.pid), slot.map(|()| 1));
    });
}

#[test]
fn refill_adds_each_moment_once() {
    loom::model(|| {
        let owned = Arc::new(Owned::new(1, 1));
        let share = Share::from_parts(2500);
        owned.region().card(0).unwrap().debit(1_000_000_000);
        let refill = |now: u64| {
            let owned = Arc::clone(&owned);
            move || owned.region().card(0).unwrap().refill(now, share)
        };
        both(refill(1_000_000), refill(2_000_000));
        // One that lost the race leaves the rest to the next.
        refill(2_000_000)();
        assert_eq!(owned.region().card(0).unwrap().balance_ns(), -1_000_000_000 + 500_000);
    });
}

#[test]
fn clock_page_is_never_read_torn() {
    const BUSY: Busy = Busy {
        tenants: 2,
        weight: 512,
        guaranteed: 3,
        unguaranteed: 4,
        high: 5,
        low_guaranteed: 6,
        low_unguaranteed: 7,
    };
    loom::model(|| {
        let page = Arc::new(Page::default());
        let mut writer = Writer::new(&page, 1);
        let read = Arc::clone(&page);
        let reader = thread::spawn(move || read.read());
        writer.publish(11, BUSY);
        let reading = reader.join().unwrap();
        if let Some(reading) = reading {
            let whole = match reading.heartbeat_ns {
                1 => Busy::default(),
                11 => BUSY,
                other => panic!("never written: {other}"),
            };
            assert_eq!(reading.busy, whole);
        }
    });
}
