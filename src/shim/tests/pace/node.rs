//! Containers that share a card, and the daemon's part in it: the clock page.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use divvy_region::clock::{Busy, Page, SAMPLE_PERIOD_NS, Writer};
use divvy_region::{Priority, layout, snapshot};
use fake_cuda::Machine;
use fake_cuda::card::{Card, clock};
use tempfile::TempDir;

use crate::container::{Container, GIB, Share, Tenant, eventually};

/// A machine with one card, whose state the containers share, as they do the page.
pub(crate) struct Node {
    pub(crate) containers: Vec<Container>,
    directory: TempDir,
    is_over: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    /// Tenants of many nodes would take the processor from each other, and it is shares that are measured.
    _place: MutexGuard<'static, ()>,
}

/// So many nodes are there at once. Their tenants use a seventh of a processor: they wait for the time of a card.
static PLACES: [Mutex<()>; 3] = [const { Mutex::new(()) }; 3];
/// Nodes that have been waited for.
static NODES: AtomicUsize = AtomicUsize::new(0);

/// So much of a card's compute.
pub(crate) fn share(cores: u32, compute: &'static str) -> Share {
    Share { memory: 256, cores, compute }
}

// === impl Node ===

impl Node {
    /// Whose daemon says nothing.
    pub(crate) fn silent(shares: &[Share]) -> Self {
        Self::of_cards(1, &shares.iter().map(std::slice::from_ref).collect::<Vec<_>>())
    }

    /// One container with several cards, whose daemon says nothing.
    pub(crate) fn with_cards(shares: &[Share]) -> Self {
        let cards = u32::try_from(shares.len()).expect("a few");
        Self::of_cards(cards, &[shares])
    }

    fn of_cards(cards: u32, containers: &[&[Share]]) -> Self {
        let place = &PLACES[NODES.fetch_add(1, Ordering::Relaxed) % PLACES.len()];
        let place = place.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("state")).expect("a directory");
        let container = |shares: &&[Share]| {
            // A MiB is written in a millisecond, so that the processor has little to do for it.
            let machine = Machine { bytes_per_us: 1 << 10, ..Machine::uniform(cards, GIB) };
            let container = Container::new(&machine, shares);
            symlink(directory.path().join("state"), container.path("lib/state")).expect("a link");
            container
        };
        let containers = containers.iter().map(container).collect();
        Self { containers, directory, is_over: Arc::default(), writer: None, _place: place }
    }

    /// Whose daemon looks who is busy, as often as the real one, and says so.
    pub(crate) fn new(shares: &[Share]) -> Self {
        Self::shared(1, &shares.iter().map(std::slice::from_ref).collect::<Vec<_>>())
    }

    /// The same with several cards, on each of which each container has a share.
    pub(crate) fn shared(cards: u32, shares: &[&[Share]]) -> Self {
        let mut node = Self::of_cards(cards, shares);
        let pages: Vec<File> = (0..cards).map(|card| node.make_page(card)).collect();
        let books: Vec<PathBuf> = node.containers.iter().map(|container| container.path("region/books")).collect();
        let priority = |share: &Share| share.compute.rsplit(' ').next()?.parse().ok();
        let promise = |share: &Share| (divvy_region::Share::from_parts(share.cores * 100), priority(share));
        let promises: Vec<Vec<_>> = shares.iter().map(|shares| shares.iter().map(promise).collect()).collect();
        let is_over = Arc::clone(&node.is_over);
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        node.writer = Some(thread::spawn(move || write(&pages, &books, &promises, &begins, &is_over)));
        eventually("clock pages", || begun.load(Ordering::Relaxed).then_some(()));
        node
    }

    fn make_page(&self, card: u32) -> File {
        let path = self.directory.path().join(format!("clock-{card}"));
        let page = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        page.set_len(layout::LINE as u64).expect("room");
        for container in &self.containers {
            symlink(&path, container.path(&format!("limits/clock-{}", Machine::uuid(card)))).expect("a link");
        }
        page
    }

    pub(crate) fn card(&self) -> Card {
        self.card_of(0)
    }

    pub(crate) fn card_of(&self, number: u32) -> Card {
        let look = || Card::open(&self.directory.path().join("state"), &Machine::uuid(number)).ok();
        eventually("the state of the card", look)
    }

    /// Starts a tenant in a container.
    pub(crate) fn tenant(&self, container: usize, words: &str) -> Tenant {
        let mut tenant = self.containers[container].tenant("tenants::tenant", words);
        tenant.says("ready");
        tenant
    }

    /// How much of the card's time each of them has, in percent, in so long a time.
    pub(crate) fn shares(&self, tenants: &[&Tenant], time: Duration) -> Vec<f64> {
        let ids: Vec<(u32, u32)> = tenants.iter().map(|tenant| (tenant.id(), 0)).collect();
        self.shares_of(&ids, time)
    }

    /// How much processes, each by its number, have of a card, by its own.
    pub(crate) fn shares_of(&self, processes: &[(u32, u32)], time: Duration) -> Vec<f64> {
        let cards: Vec<Card> = processes.iter().map(|(_, card)| self.card_of(*card)).collect();
        let look = || -> (u64, Vec<u64>) {
            let busy =
                |((process, _), card): (&(u32, u32), &Card)| card.usage_of(*process).map_or(0, |usage| usage.busy);
            (clock(), processes.iter().zip(&cards).map(busy).collect())
        };
        let (began, before) = look();
        thread::sleep(time);
        let (ended, after) = look();
        #[expect(clippy::cast_precision_loss, reason = "some seconds")]
        let percent = |(after, before): (u64, u64)| (after - before) as f64 * 100.0 / (ended - began) as f64;
        after.into_iter().zip(before).map(percent).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
    }
}

fn write(
    pages: &[File],
    books: &[PathBuf],
    promises: &[Vec<(divvy_region::Share, Option<Priority>)>],
    begun: &AtomicBool,
    is_over: &AtomicBool,
) {
    let mut writers: Vec<Writer<'_>> = pages.iter().map(map).collect();
    begun.store(true, Ordering::Relaxed);
    let books: Vec<File> = books.iter().map(|path| File::open(path).expect("books")).collect();
    let mut uses = vec![0; 8 * layout::LINE];
    while !is_over.load(Ordering::Relaxed) {
        for (card, writer) in writers.iter_mut().enumerate() {
            let mut busy = Busy::default();
            for (file, promises) in books.iter().zip(promises) {
                let at = layout::use_bytes(promises.len(), card, 8).start as u64;
                file.read_exact_at(&mut uses, at).expect("books");
                let (weight, (promise, priority)) = (snapshot::weight(&uses), promises[card]);
                if weight > 0 {
                    busy.add(weight, promise, priority);
                }
            }
            writer.publish(clock(), busy);
        }
        thread::sleep(Duration::from_nanos(SAMPLE_PERIOD_NS));
    }
}

/// A page, mapped.
fn map(page: &File) -> Writer<'static> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file that never shrinks.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), layout::LINE, access, libc::MAP_SHARED, page.as_raw_fd(), 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    // SAFETY: it stays mapped to the end of the process, and is written through the page alone.
    let page = unsafe { Page::blank(mapped.cast::<u8>().cast_const(), layout::LINE) }.expect("aligned to a page");
    Writer::new(page, clock())
}
