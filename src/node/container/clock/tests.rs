use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use divvy_api::{Memory, Share, Terms, Tier};
use divvy_region::layout::{self, LINE};
use tempfile::TempDir;

use super::*;
use crate::config::{KeySet as _, Keys};
use crate::container::Containers;
use crate::container::isolation::tests::shim;
use divvy_node_core::pod::PodRef;
use divvy_node_core::ports::{AllocatedContainer, ContainerSetup as _};

/// A node that serves the shim, and its clock; time is what tests say.
struct Bench {
    directory: TempDir,
    delivery: Containers,
    clock: Clock,
    tenants: Vec<Tenant>,
}

/// What a card's page says.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    heartbeat_ns: u64,
    weight: u64,
    /// Containers, parts of 10 000 promised to them, containers without a promise.
    busy: [u32; 3],
    /// Of them: containers that go first, and what those that go last are in the same way.
    ranks: [u32; 3],
}

fn card(number: usize) -> CardId {
    format!("GPU-{number}").parse().expect("a UUID")
}

/// Where a field of a region's slot stands that says what is in flight on the card at this position.
fn in_flight_at(cards: usize, position: usize, slot: usize) -> u64 {
    (layout::use_bytes(cards, position, slot + 1).end - LINE + layout::IN_FLIGHT) as u64
}

// === impl Bench ===

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let env = |name: &str| match name {
            "NODE_NAME" => Some("n1".into()),
            "RUN_DIR" => Some(path("run").into_os_string()),
            "CDI_DIR" => Some(path("cdi").into_os_string()),
            _ => None,
        };
        let config = Keys::from_env(env).and_then(Keys::into_config).expect("valid");
        let delivery = Containers::new((&config).into(), shim(&config.run_dir, "library"));
        Self { clock: Clock::new(path("run")), directory, delivery, tenants: Vec::new() }
    }

    /// A container with so many cores of each of these cards.
    fn come(&mut self, cards: &[(usize, u32)]) -> Nonce {
        self.come_as(cards, None)
    }

    fn come_as(&mut self, cards: &[(usize, u32)], priority: Option<Priority>) -> Nonce {
        let nonce = Nonce::random();
        let of = |(number, cores): &(usize, u32)| (card(*number), Cores::new(*cores));
        let cards: Vec<_> = cards.iter().map(of).collect();
        let shares: Vec<_> = cards
            .iter()
            .map(|(card, cores)| (card.clone(), Share { memory: Memory::mib(1), cores: *cores, ..Share::default() }))
            .collect();
        let pod = PodRef { uid: "u".to_owned(), namespace: "ns".to_owned(), name: "p".to_owned() };
        let terms = Terms { tier: Tier::Shim, ..Terms::default() };
        self.delivery.prepare(&AllocatedContainer { pod: &pod, name: "c", nonce, shares, terms }).expect("an answer");
        self.tenants.push(Tenant { nonce, cards, priority });
        nonce
    }

    fn follow(&mut self, now_ms: u64) {
        self.clock.follow(&self.tenants);
        self.clock.refresh(now_ms * MS);
    }

    fn region(&self, nonce: Nonce) -> PathBuf {
        self.directory.path().join(format!("run/containers/{nonce}/region/books"))
    }

    fn write(&self, nonce: Nonce, at: u64, bytes: &[u8]) {
        let file = fs::File::options().write(true).open(self.region(nonce)).expect("a region");
        file.write_all_at(bytes, at).expect("written");
    }

    /// A process of the container has requested this slot, and has work on its first card for so long.
    fn work(&self, nonce: Nonce, slot: u32, ns: u64) {
        self.write(nonce, 28, &(slot + 1).to_ne_bytes());
        let cards = self.tenants.iter().find(|tenant| tenant.nonce == nonce).map_or(1, |tenant| tenant.cards.len());
        self.write(nonce, in_flight_at(cards, 0, slot as usize), &ns.to_ne_bytes());
    }

    fn page(&self, number: usize) -> Page {
        let bytes = fs::read(self.directory.path().join(format!("run/clocks/GPU-{number}"))).expect("a page");
        let long = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("long enough"));
        let short = |at: usize| u16::from_ne_bytes(*bytes[at..].first_chunk().expect("long enough")).into();
        let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("long enough"));
        assert_eq!(&bytes[..8], b"divvyclk");
        let [tenants, unguaranteed, first, last_unpromised] = [32, 34, 36, 38].map(short);
        let [promised, last_promised] = [40, 44].map(word);
        let (busy, ranks) = ([tenants, promised, unguaranteed], [first, last_promised, last_unpromised]);
        Page { heartbeat_ns: long(16), weight: long(24), busy, ranks }
    }

    fn busy(&self, number: usize) -> [u32; 3] {
        self.page(number).busy
    }

    /// Lets time pass to `to_ms`, by the clock's own steps; how many there were.
    fn pass(&mut self, from_ms: u64, to_ms: u64) -> usize {
        let (mut now, mut steps) = (from_ms * MS, 0);
        while now < to_ms * MS {
            now = self.clock.tick(now);
            steps += 1;
        }
        steps
    }
}

#[test]
fn high_and_low_priority_are_counted_apart() {
    let mut bench = Bench::new();
    let first = bench.come_as(&[(0, 30)], Some(Priority::High));
    let last = [20, 0, 0].map(|cores| bench.come_as(&[(0, cores)], Some(Priority::Low)));
    bench.follow(1000);
    bench.work(first, 0, 5);
    bench.work(last[0], 0, 5);
    bench.work(last[1], 0, 5);
    bench.pass(1000, 1051);
    assert_eq!(bench.busy(0), [3, 5000, 1]);
    assert_eq!(bench.page(0).ranks, [1, 2000, 1], "those that go last, and aren't idle");
}

#[test]
fn busy_containers_are_counted_with_their_shares() {
    let mut bench = Bench::new();
    let tenants = [bench.come(&[(0, 30)]), bench.come(&[(0, 20)]), bench.come(&[(0, 0)])];
    bench.work(tenants[0], 0, 5);
    bench.work(tenants[0], 0, 0);
    bench.follow(1000);
    bench.pass(1000, 1010);
    assert_eq!(bench.busy(0), [0, 0, 0]);
    bench.work(tenants[0], 0, 5);
    bench.pass(1050, 1051);
    assert_eq!(bench.busy(0), [1, 3000, 0]);
    bench.work(tenants[2], 1023, u64::MAX);
    bench.work(tenants[1], 4, 1);
    bench.work(tenants[1], 5, 1);
    bench.pass(1060, 1230);
    assert_eq!(bench.busy(0), [3, 5000, 1], "a container counts once, whatever processes it has");
    bench.work(tenants[2], 1023, 0);
    bench.pass(1230, 1234);
    assert_eq!(bench.busy(0), [2, 5000, 0]);
}

#[test]
fn busy_process_beyond_the_first_chunk_is_found() {
    let mut bench = Bench::new();
    let tenants = [bench.come(&[(0, 30)]), bench.come(&[(0, 20)])];
    bench.work(tenants[0], 0, 1);
    bench.work(tenants[1], 900, 1);
    bench.follow(1000);
    assert_eq!(bench.pass(1000, 1045), 14);
    assert_eq!(bench.busy(0), [1, 3000, 0]);
    bench.pass(1045, 1047);
    assert_eq!(bench.busy(0), [2, 5000, 0], "64 of them at a look");
    bench.write(tenants[1], in_flight_at(1, 0, 3), &1_u64.to_ne_bytes());
    bench.write(tenants[1], in_flight_at(1, 0, 900), &[0; 8]);
    bench.pass(1047, 1050);
    assert_eq!(bench.busy(0), [1, 3000, 0], "not where it was");
    bench.pass(1050, 1053);
    assert_eq!(bench.busy(0), [2, 5000, 0], "begun anew");
    // What the tenant says of their number hides those that it has beyond.
    bench.write(tenants[1], 28, &2_u32.to_ne_bytes());
    bench.pass(1053, 1170);
    assert_eq!(bench.busy(0), [1, 3000, 0]);
}

#[test]
fn weight_is_that_of_all_processes_with_work() {
    let mut bench = Bench::new();
    let tenants = [bench.come(&[(0, 50)]), bench.come(&[(0, 50)])];
    bench.work(tenants[0], 0, MS / 4);
    bench.work(tenants[1], 1, 9 * MS);
    bench.work(tenants[1], 2, 2 * MS);
    bench.follow(1000);
    bench.pass(1000, 1100);
    let page = bench.page(0);
    assert_eq!((page.busy[0], page.weight), (2, 64 + 2 * 256));
    assert!(page.heartbeat_ns.is_multiple_of(SAMPLE_PERIOD_NS) && page.heartbeat_ns > 1090 * MS, "{page:?}");
}

#[test]
fn sampling_is_faster_while_containers_are_busy() {
    let mut bench = Bench::new();
    let tenants = [bench.come(&[(0, 50)]), bench.come(&[(0, 50)])];
    bench.come(&[(1, 50)]);
    bench.follow(1000);
    for tenant in &bench.tenants {
        bench.work(tenant.nonce, 0, 0);
    }
    let (often, seldom) = (307..=311, 37..=40);
    assert!(seldom.contains(&bench.pass(1000, 2000)), "a heartbeat each 26 ms");
    bench.work(bench.tenants[2].nonce, 0, 1);
    assert!(seldom.contains(&bench.pass(2000, 3000)), "it has the card for itself");
    assert_eq!(bench.busy(1), [1, 5000, 0]);
    bench.work(tenants[0], 0, 1);
    bench.pass(3000, 3060);
    assert!(often.contains(&bench.pass(3060, 4060)), "the other may come");
    bench.work(tenants[1], 0, 1);
    assert!(often.contains(&bench.pass(4060, 5060)));
    for tenant in tenants {
        bench.work(tenant, 0, 0);
    }
    assert!(often.contains(&bench.pass(5060, 6060)), "somebody was busy less than a second ago");
    assert!(seldom.contains(&bench.pass(6070, 7070)));
    bench.tenants.clear();
    bench.follow(7070);
    assert_eq!(bench.clock.tick(7070 * MS), u64::MAX, "nothing is due for cards that nobody shares");
}

#[test]
fn many_are_looked_at_half_as_often() {
    let mut bench = Bench::new();
    let tenants: Vec<_> = (0..MANY).map(|number| bench.come(&[(number % 2, 5)])).collect();
    bench.work(tenants[0], 0, 1);
    bench.follow(1000);
    assert!((307..=311).contains(&bench.pass(1000, 2000)));
    bench.come(&[(0, 5)]);
    bench.follow(2000);
    // Of the other card, too, which comes at the same times.
    assert!((153..=156).contains(&bench.pass(2000, 3000)));
}

#[test]
fn gpus_of_one_container_are_counted_apart() {
    let mut bench = Bench::new();
    let both = bench.come(&[(1, 40), (0, 10)]);
    let one = bench.come(&[(0, 60)]);
    bench.work(one, 0, 1);
    bench.work(both, 0, 1);
    bench.follow(1000);
    bench.pass(1000, 1001);
    assert_eq!((bench.busy(0), bench.busy(1)), ([1, 6000, 0], [1, 4000, 0]));
    bench.write(both, in_flight_at(2, 1, 0), &1_u64.to_ne_bytes());
    bench.pass(1010, 1013);
    assert_eq!((bench.busy(0), bench.busy(1)), ([2, 7000, 0], [1, 4000, 0]));
    bench.delivery.remove(vec![one]);
    bench.tenants.retain(|tenant| tenant.nonce != one);
    bench.follow(1020);
    bench.pass(1020, 1023);
    assert_eq!((bench.busy(0), bench.busy(1)), ([1, 1000, 0], [1, 4000, 0]));
}

#[test]
fn tampered_region_counts_as_idle() {
    type Tamper = fn(&Path);
    let tamper: [(&str, Tamper); 9] = [
        ("nothing", |path| fs::remove_file(path).expect("removed")),
        ("its directory", |path| fs::remove_dir_all(path.parent().expect("a directory")).expect("removed")),
        ("a link", |path| {
            fs::rename(path, path.with_extension("aside")).expect("moved");
            symlink(path.with_extension("aside"), path).expect("a link");
        }),
        ("a pipe", |path| {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            fs::remove_file(path).expect("removed");
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        }),
        ("a directory", |path| {
            fs::remove_file(path).expect("removed");
            fs::create_dir(path).expect("a directory");
        }),
        ("less", |path| fs::File::options().write(true).open(path).expect("open").set_len(10_000).expect("cut")),
        ("no bytes", |path| drop(fs::File::create(path).expect("cut"))),
        ("more", |path| {
            fs::remove_file(path).expect("removed");
            fs::File::create(path).expect("a file").set_len(1 << 40).expect("a hole");
        }),
        ("anything", |path| fs::write(path, vec![0xff; layout::size(1)]).expect("written")),
    ];
    for (what, tamper) in tamper {
        let mut bench = Bench::new();
        let [hostile, other] = [bench.come(&[(0, 30)]), bench.come(&[(0, 20)])];
        for tenant in [hostile, other] {
            bench.work(tenant, 0, 1);
        }
        bench.follow(1000);
        bench.pass(1000, 1001);
        assert_eq!(bench.busy(0), [2, 5000, 0]);
        tamper(&bench.region(hostile));
        // What is open is believed until files are looked at again.
        bench.pass(1001, 2000);
        bench.clock.refresh(2000 * MS);
        bench.pass(2000, 2011);
        assert_eq!(bench.busy(0), [1, 2000, 0], "{what}");
        assert!(bench.page(0).heartbeat_ns >= 2000 * MS, "{what}");
    }
}

#[test]
fn truncated_region_does_not_hide_other_containers() {
    let mut bench = Bench::new();
    let tenants: Vec<_> = (0..7).map(|_| bench.come(&[(0, 10)])).collect();
    for tenant in &tenants {
        bench.work(*tenant, 0, 1);
    }
    bench.follow(1000);
    bench.pass(1000, 1001);
    assert_eq!(bench.busy(0), [7, 7000, 0]);
    let cut = |at: usize, length| fs::File::options().write(true).open(bench.region(tenants[at]))?.set_len(length);
    for (at, length) in [(0, 0), (2, 4096), (3, 64), (6, 0)] {
        cut(at, length).expect("cut");
    }
    bench.pass(1001, 1004);
    assert_eq!(bench.busy(0), [3, 3000, 0]);
    let fresh = fs::read(bench.region(tenants[1])).expect("a region");
    fs::write(bench.region(tenants[0]), fresh).expect("written");
    bench.pass(1004, 1100);
    assert_eq!(bench.busy(0), [3, 3000, 0], "not before files are looked at again");
    bench.clock.refresh(1100 * MS);
    bench.pass(1100, 1103);
    assert_eq!(bench.busy(0), [4, 4000, 0]);
}

#[test]
fn files_that_are_made_anew_are_found() {
    let mut bench = Bench::new();
    let tenant = bench.come(&[(0, 30)]);
    bench.follow(1000);
    let path = bench.region(tenant);
    let fresh = fs::read(&path).expect("a region");
    fs::remove_file(&path).expect("removed");
    fs::write(&path, fresh).expect("another one");
    bench.work(tenant, 0, 1);
    let clock = bench.directory.path().join("run/clocks/GPU-0");
    fs::remove_file(&clock).expect("removed");
    fs::write(&clock, [0; 4096]).expect("another one");
    bench.clock.refresh(2000 * MS);
    bench.pass(2000, 2001);
    assert_eq!(bench.page(0), Page { heartbeat_ns: 2000 * MS, weight: 1, busy: [1, 3000, 0], ranks: [0; 3] });
}

/// A real thread, by its own time.
#[test]
fn clock_page_heartbeat_and_thread_end_on_stop() {
    let mut bench = Bench::new();
    bench.come(&[(0, 30)]);
    let stop = CancellationToken::new();
    // Held by the thread alone, as long as it runs.
    let tenants = Arc::new(bench.tenants.clone());
    let running = Arc::downgrade(&tenants);
    let view = move |known| {
        (known != 1).then(|| ClockView { revision: 1, tenants: (*tenants).clone(), ..ClockView::default() })
    };
    start(bench.directory.path().join("run"), view, stop.clone()).expect("a thread");
    let deadline = Instant::now() + Duration::from_secs(30);
    let until = |holds: &dyn Fn() -> bool| {
        while !holds() {
            assert!(Instant::now() < deadline, "not within 30 s");
            thread::sleep(Duration::from_millis(5));
        }
    };
    let page = bench.directory.path().join("run/clocks/GPU-0");
    until(&|| fs::read(&page).is_ok_and(|bytes| bytes.starts_with(b"divvyclk")));
    let first = bench.page(0).heartbeat_ns;
    until(&|| bench.page(0).heartbeat_ns > first + 200 * MS);
    stop.cancel();
    until(&|| running.strong_count() == 0);
}
