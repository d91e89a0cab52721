use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::accounts::{MemoryLimit, Reservation};
use crate::layout::{self, CARDS, Region, VERSION};
use crate::slots::Locks;
use crate::sync::Ordering;

/// Memory as a mapping would have it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bytes([u8; LINE]);

struct Nobody;

impl Locks for Nobody {
    fn try_lock(&self, _slot: usize) -> bool {
        true
    }

    fn unlock(&self, _slot: usize) {}

    fn is_alive(&self, _pid: u32, _started: u64) -> bool {
        false
    }
}

fn new_region(cards: u32) -> Vec<Bytes> {
    let mut memory = vec![Bytes([0; LINE]); layout::size(cards as usize) / LINE];
    memory[0].0 = layout::header(cards, 3).expect("a number of cards");
    memory
}

fn file(memory: &[Bytes]) -> Vec<u8> {
    memory.iter().flat_map(|line| line.0).collect()
}

#[expect(unsafe_code, reason = "the constructor is what is tested")]
fn map(memory: &mut [Bytes]) -> Result<Region<'_>, InvalidRegion> {
    let length = size_of_val(memory);
    // SAFETY: the region borrows the memory, all of it, for as long as it lives.
    unsafe { Region::new(memory.as_mut_ptr().cast(), length) }
}

fn owner(pid: u32) -> Owner {
    Owner { pid, started: 77, nonce: u64::from(pid) << 40, comm: *b"a.out\0\0\0\0\0\0\0\0\0\0\0" }
}

#[test]
fn snapshot_reads_what_processes_wrote() {
    let mut memory = new_region(2);
    let region = map(&mut memory).expect("a region");
    assert_eq!((region.cards(), region.header.generation.load(Ordering::Relaxed)), (2, 3));
    let slot = region.claim(&Nobody, &owner(12)).expect("room");
    let account = region.accounts(1).and_then(|accounts| accounts.account(slot)).expect("a slot");
    account.charge(493);
    account.import(70);
    account.close(10);
    assert_eq!(account.reserve_managed(9, MemoryLimit::all_physical(u64::MAX), || ()), Reservation::Reserved);
    account.release_managed(2);
    account.add_context(30);
    account.remove_context(10);
    account.launched(8000);
    account.completed(1000, 900);
    let card = region.card(1).expect("a card");
    let counters = [&card.launches, &card.graph_launches, &card.throttled_ns, &card.allocs, &card.ooms, &card.unknown];
    (1..).zip(counters).for_each(|(times, counter)| counter.add(times));
    card.debit(40);
    let bytes = file(&memory);
    let snapshot = Snapshot::new(&bytes).expect("a region");
    assert_eq!((snapshot.cards(), snapshot.generation(), snapshot.high()), (2, 3, 1));
    assert_eq!(snapshot.owners().collect::<Vec<_>>(), [(0, owner(12))]);
    let usage = Usage {
        tentative: 0,
        committed: 500,
        imported: 60,
        managed: 7,
        contexts: 20,
        in_flight_ns: 7000,
        busy_ns: 900,
    };
    assert_eq!((snapshot.usage(1, 0), snapshot.usage(1, 1), snapshot.usage(2, 0)), (Some(usage), None, None));
    let totals = Totals {
        balance_ns: -40,
        launches: 1,
        graph_launches: 2,
        throttled_ns: 3,
        allocs: 4,
        ooms: 5,
        unknown: 6,
        usage,
    };
    assert_eq!((snapshot.totals(1), snapshot.totals(0)), (Some(totals), Some(Totals::default())));
    assert_eq!(weight(&bytes[layout::use_bytes(2, 1, snapshot.high())]), 1, "a small part of a slice");
    assert_eq!(weight(&bytes[layout::use_bytes(2, 0, SLOTS)]), 0);
}

#[test]
fn erased_slot_is_free_and_empty() {
    let mut memory = new_region(2);
    let region = map(&mut memory).expect("a region");
    for slot in 0..2 {
        assert_eq!(region.claim(&Nobody, &owner(0)), Ok(0), "nobody lives");
        let account = region.accounts(1).and_then(|accounts| accounts.account(slot)).expect("a slot");
        account.charge(100);
    }
    let mut bytes = file(&memory);
    let erasure: Vec<_> = Snapshot::new(&bytes).expect("a region").erasure(0).collect();
    assert_eq!(erasure.last(), Some(&layout::slot_bytes(2, 0)));
    for range in erasure {
        bytes[range].fill(0);
    }
    let snapshot = Snapshot::new(&bytes).expect("a region");
    assert_eq!((snapshot.owners().count(), snapshot.usage(1, 0)), (0, Some(Usage::default())));
    assert_eq!((snapshot.erasure(1).count(), snapshot.erasure(usize::MAX).count()), (0, 0));
}

#[test]
fn invalid_region_is_refused_with_the_reason() {
    let refused = |at: usize, byte: u8| {
        let mut memory = new_region(1);
        memory[0].0[at] = byte;
        let reason = map(&mut memory).expect_err("it is broken");
        assert_eq!(Snapshot::new(&file(&memory)).expect_err("it is broken"), reason);
        reason
    };
    assert!(matches!(refused(7, 0), InvalidRegion::Magic(_)));
    assert_eq!(refused(8, 3), InvalidRegion::Version(VERSION + 1));
    assert_eq!(refused(12, 1), InvalidRegion::Slots(1025));
    assert_eq!(refused(16, 0), InvalidRegion::Size { stated: 131_072, needed: 131_200 });
    assert_eq!(refused(24, 0), InvalidRegion::Cards(0));
    assert_eq!(refused(24, 65), InvalidRegion::Cards(65));
    let (length, needed) = (layout::size(1) - LINE, layout::size(1));
    let mut memory = new_region(1);
    memory.pop();
    assert_eq!(map(&mut memory).expect_err("it is short"), InvalidRegion::Short { length, needed });
    assert_eq!(Snapshot::new(&[0; 63]).expect_err("it is short"), InvalidRegion::Short { length: 63, needed: LINE });
    assert_eq!(
        (layout::header(0, 0), layout::header(65, 0)),
        (Err(InvalidRegion::Cards(0)), Err(InvalidRegion::Cards(65)))
    );
    assert_eq!(InvalidRegion::Cards(65).to_string(), format!("region for 65 cards: must be 1 to {CARDS}"));
}

#[test]
#[expect(unsafe_code, reason = "the constructor is what is tested")]
fn unaligned_or_short_memory_is_refused() {
    let mut memory = new_region(1);
    let base = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: nothing but the address is looked at before it is refused.
    let views = unsafe { [Region::new(core::ptr::null_mut(), LINE), Region::new(base.add(8), LINE)] };
    assert!(views.iter().all(|view| matches!(view, Err(InvalidRegion::Misaligned { .. }))), "{views:?}");
    // SAFETY: nothing is read of a memory without a header.
    assert!(matches!(unsafe { Region::new(base, 63) }, Err(InvalidRegion::Short { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A true header, and anything after it.
    #[test]
    fn snapshot_of_any_slots_never_panics(
        cards in 1_u32..=2,
        high in any::<u32>(),
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..200),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = file(&new_region(cards));
        bytes[offset_of!(Header, high)..][..4].copy_from_slice(&high.to_ne_bytes());
        for (at, word) in noise {
            let at = LINE + at.index(bytes.len() - LINE - 8);
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        let whole = bytes.len();
        bytes.truncate(cut.map_or(whole, |cut| cut.index(whole)));
        let Ok(snapshot) = Snapshot::new(&bytes) else {
            prop_assert!(bytes.len() < whole);
            return Ok(());
        };
        prop_assert!(snapshot.high() <= SLOTS && snapshot.owners().count() <= SLOTS);
        for card in 0..=CARDS {
            prop_assert_eq!(snapshot.totals(card).is_some(), card < snapshot.cards());
        }
        for (slot, _) in snapshot.owners() {
            prop_assert_eq!(snapshot.erasure(slot).count(), snapshot.cards() + 1);
        }
    }

    #[test]
    fn snapshot_of_arbitrary_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Snapshot::new(&bytes).is_err());
        let _sum = weight(&bytes);
    }
}
