use proptest::prelude::*;

use super::*;
use crate::owned::Owned;

fn nobody_waits() {
    unreachable!("nobody else is trying");
}

#[test]
fn memory_limit_is_exact_over_all_slots() {
    let owned = Owned::with_high(2, 3, 3);
    let accounts = owned.region().accounts(1).expect("a card");
    let [a, b] = [0, 2].map(|slot| accounts.account(slot).expect("a slot"));
    assert_eq!(a.reserve(60, MemoryLimit::all_physical(100), nobody_waits), Reservation::Reserved);
    assert_eq!(b.reserve(41, MemoryLimit::all_physical(100), nobody_waits), Reservation::OutOfMemory { used: 60 });
    assert_eq!(b.reserve(40, MemoryLimit::all_physical(100), nobody_waits), Reservation::Reserved);
    assert_eq!(accounts.used(), 100);
    a.release(60);
    assert_eq!(b.reserve(60, MemoryLimit::all_physical(100), nobody_waits), Reservation::Reserved);
    assert_eq!(owned.region().accounts(0).expect("a card").used(), 0, "cards are counted apart");
}

#[test]
fn unrequested_memory_is_charged_and_never_refused() {
    let owned = Owned::with_high(1, 2, 2);
    let accounts = owned.region().accounts(0).expect("a card");
    let account = accounts.account(0).expect("a slot");
    account.charge(120);
    account.import(1000);
    assert_eq!(accounts.used(), 120);
    assert_eq!(
        account.reserve(1, MemoryLimit::all_physical(100), nobody_waits),
        Reservation::OutOfMemory { used: 120 }
    );
    assert_eq!(
        account.reserve(0, MemoryLimit::all_physical(100), nobody_waits),
        Reservation::Reserved,
        "who wants nothing takes nothing"
    );
    account.release(90);
    assert_eq!(account.reserve_managed(10, MemoryLimit::all_physical(100), nobody_waits), Reservation::Reserved);
    assert_eq!(
        account.reserve(60, MemoryLimit::all_physical(100), nobody_waits),
        Reservation::Reserved,
        "managed bytes count once"
    );
}

#[test]
fn physical_limit_is_exact_beside_managed_memory() {
    let owned = Owned::with_high(1, 2, 2);
    let accounts = owned.region().accounts(0).expect("a card");
    let [a, b] = [0, 1].map(|slot| accounts.account(slot).expect("a slot"));
    let limit = MemoryLimit { total: 100, physical: 60 };
    let refused = |used| Reservation::OutOfMemory { used };
    assert_eq!(a.reserve_managed(30, limit, nobody_waits), Reservation::Reserved);
    assert_eq!(b.reserve(61, limit, nobody_waits), refused(30), "more than can ever be had");
    assert_eq!(b.reserve(60, limit, nobody_waits), Reservation::Reserved);
    assert_eq!(a.reserve(1, limit, nobody_waits), refused(90));
    assert_eq!(a.reserve_managed(11, limit, nobody_waits), refused(90));
    assert_eq!(b.reserve_managed(10, limit, nobody_waits), Reservation::Reserved);
    assert!(accounts.fit(limit) && !accounts.fit(MemoryLimit { physical: 59, ..limit }));
    a.release_managed(30);
    assert_eq!(a.reserve(1, limit, nobody_waits), refused(70), "what was freed was managed");
    b.release(20);
    assert_eq!(a.reserve(20, limit, nobody_waits), Reservation::Reserved);
    assert_eq!(b.reserve_managed(30, limit, nobody_waits), Reservation::Reserved);
    assert_eq!((accounts.used(), accounts.fit(limit)), (100, true));
}

#[test]
fn tentative_reservations_of_others_delay_a_refusal() {
    let owned = Owned::with_high(1, 2, 2);
    owned.leave_tentative(1, 100);
    let account = owned.region().accounts(0).expect("a card").account(0).expect("a slot");
    let mut pauses = 0;
    let refused = account.reserve(50, MemoryLimit::all_physical(100), || pauses += 1);
    assert_eq!((refused, pauses), (Reservation::OutOfMemory { used: 0 }, TRIES - 1 - SPINS));
    let granted = account.reserve(50, MemoryLimit::all_physical(100), || owned.leave_tentative(1, 0));
    assert_eq!(granted, Reservation::Reserved);
}

#[test]
fn work_in_flight_is_summed_and_completed() {
    let owned = Owned::with_high(1, 2, 2);
    let accounts = owned.region().accounts(0).expect("a card");
    let [a, b] = [0, 1].map(|slot| accounts.account(slot).expect("a slot"));
    a.launched(700);
    b.launched(300);
    assert_eq!(accounts.in_flight_ns(), 1000);
    a.completed(700, 900);
    assert_eq!(accounts.in_flight_ns(), 300);
}

#[test]
fn threads_never_exceed_the_limit_together() {
    let owned = Owned::with_high(1, 4, 4);
    let accounts = owned.region().accounts(0).expect("a card");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let account = accounts.account(thread / 2).expect("a slot");
            scope.spawn(move || {
                for _ in 0..2000 {
                    if account.reserve(40, MemoryLimit::all_physical(100), std::thread::yield_now)
                        == Reservation::Reserved
                    {
                        assert!(accounts.used() <= 100);
                        account.release(40);
                    }
                }
            });
        }
    });
    assert_eq!((accounts.used(), accounts.sums(Use::held_or_tentative)), (0, Sums::default()));
}

proptest! {
    /// A tenant can write anything into its region.
    #[test]
    fn arbitrary_region_values_never_overflow(
        words in proptest::collection::vec(any::<u64>(), 18),
        high in any::<u32>(),
        bytes in any::<u64>(),
        limit in any::<u64>(),
    ) {
        let owned = Owned::with_high(1, 3, high);
        let accounts = owned.region().accounts(0).expect("a card");
        let lines = accounts.uses.iter().flat_map(|line| {
            let Use { tentative, committed, imported, managed, in_flight_ns, busy_ns, held_until_ns, contexts } = line;
            [tentative, committed, imported, managed, in_flight_ns, busy_ns, held_until_ns, contexts]
        });
        lines.zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        let account = accounts.account(1).expect("a slot");
        let _either = account.reserve(bytes, MemoryLimit { total: limit, physical: limit / 2 }, || ());
        let _either = account.reserve_managed(bytes, MemoryLimit::all_physical(limit), || ());
        account.release_managed(bytes);
        account.release(bytes);
        account.completed(bytes, limit);
        account.charge(limit);
        account.import(limit);
        account.close(bytes);
        let _sums = (accounts.used(), accounts.in_flight_ns());
    }
}
