//! What the hooks of a launch and of an allocation cost in here, with so many processes in the container.

use std::hint::black_box;

use divan::Bencher;
use divvy_region::accounts::OtherProcesses;
use divvy_region::layout::{self, LINE};
use divvy_region::{Gate, Locks, MemoryLimit, Owner, Region, Share};

const PROCESSES: [u32; 3] = [1, 64, 1024];
const NOW: u64 = 1_000_000_000_000;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; LINE]);

/// Everybody lives.
struct Alive;

impl Locks for Alive {
    fn try_lock(&self, _slot: usize) -> bool {
        true
    }

    fn unlock(&self, _slot: usize) {}

    fn is_alive(&self, _pid: u32, _started: u64) -> bool {
        true
    }
}

fn main() {
    divan::main();
}

/// A region of one card, all of whose processes hold something.
#[expect(unsafe_code, reason = "a region is mapped memory")]
fn region(processes: u32) -> Region<'static> {
    let mut memory = vec![Line([0; LINE]); layout::size(1) / LINE];
    memory[0].0 = layout::header(1, 0).expect("one card");
    let memory = memory.leak();
    let length = size_of_val(memory);
    // SAFETY: leaked, and used by nobody else.
    let region = unsafe { Region::new(memory.as_mut_ptr().cast(), length) }.expect("a region");
    for pid in 1..=processes {
        let slot = region.claim(&Alive, &Owner { pid, ..Owner::default() }).expect("room");
        region.accounts(0).and_then(|accounts| accounts.account(slot)).expect("a slot").charge(1 << 20);
    }
    region
}

#[divan::bench(args = PROCESSES)]
fn reserve_and_release(bencher: Bencher<'_, '_>, processes: u32) {
    let account = region(processes).accounts(0).and_then(|accounts| accounts.account(0)).expect("a slot");
    bencher.bench_local(|| {
        let reservation = account.reserve(black_box(4096), MemoryLimit::all_physical(1 << 40), || ());
        account.release(black_box(4096));
        reservation
    });
}

/// A launch of a limited container that isn't held back, with its settlement.
#[divan::bench(args = PROCESSES)]
fn launch_through_an_open_gate(bencher: Bencher<'_, '_>, processes: u32) {
    let region = region(processes);
    let (card, accounts) = region.card(0).zip(region.accounts(0)).expect("a card");
    let account = accounts.account(0).expect("a slot");
    let (share, others) = (Share::from_parts(2500), OtherProcesses::new());
    bencher.bench_local(|| {
        card.refill(black_box(NOW), share);
        let in_flight_ns = others.in_flight_ns(account, black_box(NOW), black_box(10_000));
        let gate = card.gate(Gate::Open, black_box(10_000), in_flight_ns, share);
        account.launched(black_box(10_000));
        card.launches.add(1);
        account.completed(black_box(10_000), black_box(10_000));
        gate
    });
}

/// What each launch would cost without being remembered, and costs one in fifty, or the first in 50 µs.
#[divan::bench(args = PROCESSES)]
fn what_all_have_in_flight(bencher: Bencher<'_, '_>, processes: u32) {
    let accounts = region(processes).accounts(0).expect("a card");
    bencher.bench_local(|| black_box(accounts).in_flight_ns());
}

#[divan::bench]
fn launch_with_the_whole_card(bencher: Bencher<'_, '_>) {
    let card = region(1).card(0).expect("a card");
    bencher.bench_local(|| {
        card.refill(black_box(NOW), black_box(Share::WHOLE));
        card.gate(Gate::Open, 0, 0, black_box(Share::WHOLE))
    });
}
