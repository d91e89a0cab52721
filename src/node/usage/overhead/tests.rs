use std::os::unix::fs::MetadataExt as _;

use divvy_api::usage::RegionUsage;
use divvy_api::{CardId, Share};
use proptest::prelude::*;

use super::super::fixture::{card, holder};
use super::*;

const MIB: u64 = 1 << 20;
/// Looks of a window, which come each half second.
const WINDOW: u32 = 20;
const LOOK: Duration = Duration::from_millis(500);

/// A container, its directory, and how late it is.
struct Bench {
    directory: tempfile::TempDir,
    nonce: Nonce,
    overheads: Overheads,
    processes: Processes,
    now: Instant,
}

fn seen(card: CardId, driver_bytes: Option<u64>, region: RegionUsage) -> ContainerUsage {
    let of = holder("a", true).of;
    ContainerUsage { of, card, share: Share::default(), region: Some(region), driver_bytes, overhead_bytes: 0 }
}

impl Bench {
    fn new() -> Self {
        let (directory, nonce) = (tempfile::tempdir().expect("a directory"), Nonce::random());
        let file = overhead_file(directory.path(), nonce);
        fs::create_dir_all(file.parent().expect("above it")).expect("a directory");
        let processes = Processes { slots: HashSet::from([(1, 10), (2, 20)]), driver: HashSet::from([101]) };
        Self { directory, nonce, overheads: Overheads::over(WINDOW * LOOK), processes, now: Instant::now() }
    }

    /// What is written after another look at these figures of card 0 and these of card 1.
    fn looks(&mut self, first: (Option<u64>, u64), second: (Option<u64>, u64)) -> [u64; 2] {
        self.now += LOOK;
        let region = |used_bytes| RegionUsage { used_bytes, ..RegionUsage::default() };
        let mut cards = [seen(card(0), first.0, region(first.1)), seen(card(1), second.0, region(second.1))];
        self.overheads.take(self.nonce, &mut cards, self.processes.clone(), self.directory.path(), self.now);
        cards.map(|card| card.overhead_bytes)
    }

    /// The same with region of card 0 alone.
    fn looks_at_region(&mut self, driver: Option<u64>, region: RegionUsage) -> u64 {
        self.now += LOOK;
        let mut cards = [seen(card(0), driver, region)];
        self.overheads.take(self.nonce, &mut cards, self.processes.clone(), self.directory.path(), self.now);
        cards[0].overhead_bytes
    }

    /// The same of card 0 alone, so many times.
    fn looks_at(&mut self, times: u32, driver: Option<u64>, region: u64) -> u64 {
        (0..times).fold(0, |_, _| self.looks((driver, region), (Some(0), 0))[0])
    }

    fn file(&self) -> Option<String> {
        fs::read_to_string(overhead_file(self.directory.path(), self.nonce)).ok()
    }

    fn inode(&self) -> u64 {
        fs::metadata(overhead_file(self.directory.path(), self.nonce)).expect("a file").ino()
    }
}

#[test]
fn context_overhead_is_reported_after_a_full_window() {
    let mut bench = Bench::new();
    assert_eq!((bench.looks_at(WINDOW, Some(700 * MIB), 200 * MIB), bench.file()), (0, None));
    assert_eq!(bench.looks_at(1, Some(700 * MIB), 200 * MIB), 500 * MIB);
    assert_eq!(bench.file().as_deref(), Some("GPU-0 524288000\nGPU-1 0\n"));
    assert_eq!(bench.looks_at(WINDOW, Some(800 * MIB), 200 * MIB), 500 * MIB, "another context");
    assert_eq!(bench.looks_at(1, Some(800 * MIB), 200 * MIB), 600 * MIB);
    bench.processes.slots.remove(&(1, 10));
    assert_eq!(bench.looks_at(WINDOW, Some(300 * MIB), 200 * MIB), 600 * MIB, "one that ended");
    assert_eq!(bench.looks_at(1, Some(300 * MIB), 200 * MIB), 100 * MIB);
    assert_eq!(
        bench.looks((Some(300 * MIB), 200 * MIB), (Some(7 * MIB), 0)),
        [100 * MIB, 0],
        "cards are compared apart"
    );
}

#[test]
fn fluctuating_memory_is_no_context() {
    let mut bench = Bench::new();
    bench.looks_at(WINDOW + 1, Some(0), 0);
    for round in 0..100 {
        let allocated = (round % 3) * 1000 * MIB;
        // A probe tells what was there up to two looks ago.
        let probed = (round.saturating_sub(2) % 3) * 1000 * MIB;
        assert_eq!(bench.looks_at(1, Some(probed), allocated), 0);
    }
    assert_eq!(bench.file(), None);
}

#[test]
fn shared_memory_is_charged_to_each_user() {
    let mut bench = Bench::new();
    let mut written = 0;
    for _ in 0..=WINDOW {
        let region = RegionUsage { used_bytes: 100 * MIB, imported_bytes: 300 * MIB, ..RegionUsage::default() };
        written = bench.looks_at_region(Some(450 * MIB), region);
    }
    assert_eq!(written, 50 * MIB);
}

#[test]
fn small_changes_are_not_written() {
    let mut bench = Bench::new();
    bench.looks_at(WINDOW + 1, Some(10 * MIB), 0);
    let written = bench.inode();
    assert_eq!(bench.looks_at(WINDOW + 1, Some(11 * MIB - 1), 0), 10 * MIB);
    assert_eq!(bench.inode(), written);
    assert_eq!(bench.looks_at(WINDOW + 1, Some(11 * MIB), 0), 11 * MIB);
    assert_ne!(bench.inode(), written);
}

#[test]
fn overhead_stays_while_its_processes_live() {
    let mut bench = Bench::new();
    bench.looks_at(WINDOW + 1, Some(500 * MIB), 0);
    for round in 0..200 {
        let allocated = (round % 3) * 1000 * MIB;
        let probed = (round.saturating_sub(2) % 3) * 1000 * MIB;
        assert_eq!(bench.looks_at(1, Some(probed + 500 * MIB), allocated), 500 * MIB);
    }
    assert_eq!(bench.looks_at(2 * WINDOW, None, 0), 500 * MIB, "the driver says nothing");
    bench.processes.driver.insert(103);
    assert_eq!(bench.looks_at(WINDOW + 1, Some(800 * MIB), 0), 800 * MIB);
    bench.processes = Processes::default();
    assert_eq!(bench.looks_at(1, Some(800 * MIB), 0), 0, "who comes next begins with nothing");
    assert_eq!(bench.file().as_deref(), Some("GPU-0 0\nGPU-1 0\n"));
}

#[test]
fn unloaded_memory_is_released_once_nothing_moves() {
    let mut bench = Bench::new();
    bench.looks_at(WINDOW + 1, Some(500 * MIB), 0);
    assert_eq!(bench.looks_at(WINDOW, Some(300 * MIB), 0), 500 * MIB, "that may be a dip");
    assert_eq!(bench.looks_at(1, Some(300 * MIB), 0), 300 * MIB);
}

#[test]
fn processes_that_come_and_go_hide_no_overhead() {
    let mut bench = Bench::new();
    for round in 0..20 {
        bench.processes.driver.insert(200 + round);
        bench.looks_at(4, Some(600 * MIB), 0);
        bench.processes.driver.remove(&(200 + round));
        bench.looks_at(4, Some(500 * MIB), 0);
    }
    assert_eq!(bench.looks_at(1, Some(500 * MIB), 0), 500 * MIB, "what all of them had");
}

#[test]
fn managed_memory_hides_no_overhead() {
    let mut bench = Bench::new();
    let region = RegionUsage { used_bytes: 5000 * MIB, managed_bytes: 4000 * MIB, ..RegionUsage::default() };
    let written = (0..=WINDOW).fold(0, |_, _| bench.looks_at_region(Some(1300 * MIB), region));
    assert_eq!(written, 300 * MIB);
}

#[test]
fn still_process_shows_its_context() {
    let mut bench = Bench::new();
    let region =
        |launches| RegionUsage { used_bytes: 900 * MIB, context_bytes: 400 * MIB, launches, ..RegionUsage::default() };
    let still = |bench: &Bench| bench.overheads.still(bench.nonce, 0, bench.now);
    for _ in 0..=WINDOW {
        bench.looks_at_region(Some(950 * MIB), region(0));
    }
    assert_eq!(still(&bench), None, "there are two");
    bench.processes.slots.remove(&(1, 10));
    for _ in 0..WINDOW {
        bench.looks_at_region(Some(950 * MIB), region(0));
    }
    assert_eq!(still(&bench), None, "nor is that long enough");
    for _ in 0..=WINDOW {
        bench.looks_at_region(Some(950 * MIB), region(0));
    }
    assert_eq!(still(&bench), Some(Still { beyond: 450 * MIB, contexts: 400 * MIB, has_launched: false }));
    bench.looks_at_region(Some(980 * MIB), region(1));
    assert_eq!(still(&bench), None, "it has changed");
    for _ in 0..=WINDOW {
        bench.looks_at_region(Some(980 * MIB), region(1));
    }
    assert_eq!(still(&bench), Some(Still { beyond: 480 * MIB, contexts: 400 * MIB, has_launched: true }));
}

#[test]
fn restart_keeps_reported_overhead_until_measured() {
    let mut bench = Bench::new();
    bench.looks_at(WINDOW + 1, Some(500 * MIB), 0);
    bench.overheads = Overheads::over(WINDOW * LOOK);
    assert_eq!(bench.looks_at(WINDOW, Some(300 * MIB), 0), 500 * MIB);
    assert_eq!(bench.looks_at(1, Some(300 * MIB), 0), 300 * MIB);
    fs::write(overhead_file(bench.directory.path(), bench.nonce), "GPU-0\nGPU-1 -5\n\n").expect("room");
    bench.overheads = Overheads::over(WINDOW * LOOK);
    assert_eq!(bench.looks_at(1, Some(300 * MIB), 0), 0, "a file that isn't ours says nothing");
}

#[test]
fn overhead_of_a_removed_container_is_skipped() {
    let mut bench = Bench::new();
    fs::remove_dir_all(bench.directory.path().join("containers")).expect("a directory");
    assert_eq!(bench.looks_at(WINDOW + 5, Some(500 * MIB), 0), 0);
    bench.overheads.retain(&HashSet::new());
    assert!(bench.overheads.of.is_empty());
}

proptest! {
    /// Allocations come and go at any moment, and the driver's figure is as old as the last of its probes. Whatever it is
    /// that it sees beyond the region, no more than that is written, and all of it once nothing moves any more.
    #[test]
    fn overhead_never_exceeds_the_actual_one(
        context in 1..2000_u64,
        held in prop::collection::vec(0..10_000_u64, 1..120),
        probe in 1..=9_usize,
        first in 0..9_usize,
    ) {
        let mut bench = Bench::new();
        let mut probed = 0;
        let last = *held.last().expect("one at least");
        let still = std::iter::repeat_n(last, 2 * WINDOW as usize + 1);
        for (number, held) in held.into_iter().chain(still).enumerate() {
            if number % probe == first % probe {
                probed = context + held;
            }
            let written = bench.looks_at(1, Some(probed * MIB), held * MIB);
            prop_assert!(written <= context * MIB, "{} MiB", written / MIB);
        }
        prop_assert_eq!(bench.looks_at(1, Some((context + last) * MIB), last * MIB), context * MIB);
    }
}
