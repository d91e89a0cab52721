//! Writes the clock pages, which tell the containers that share a GPU which of them have work, and how much.
//!
//! A container is busy on a card as long as its region says that work is in flight there. That is looked at often where there
//! is something to tell apart, and never so rarely that a page goes stale: `divvy_region` believes one for 100 ms.
//!
//! To wake is most of what this costs, so cards are looked at together; and where many containers share cards, more seldom.
//!
//! A region is the tenant's: it is read by `pread`, a few lines of it, and one that is no region counts as idle. It isn't
//! mapped: who looks at a page that its tenant has cut off is ended, and who looks while the tenant punches a hole there waits
//! until that is done, which takes as long as the tenant likes. What a file is replaced by is looked for once a second.

mod card;
pub(super) mod pages;
mod watched;

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use divvy_api::{CardId, Cores, Priority};
use divvy_region::clock::{DriverMemory, SAMPLE_PERIOD_NS};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio_util::sync::CancellationToken;

use self::card::Card;
use self::watched::Watched;
use divvy_node_core::ledger::Nonce;

const MS: u64 = 1_000_000;
/// Interval of samples of a card that at most one container uses: 26 ms, so that a page isn't stale when some come late.
const SELDOM: u64 = 8 * SAMPLE_PERIOD_NS;
/// Interval of checks for a new revision of the ledger. All intervals are multiples of the shortest, so that they coincide.
const LEDGER: u64 = 16 * SAMPLE_PERIOD_NS;
/// Containers, counted on each of their cards, above which samples are half as frequent: each costs a system call.
const MANY: usize = 16;
/// Interval of checks whether files have been replaced since they were opened.
const REFRESH: u64 = 1000 * MS;

/// Containers whose compute the shim limits, at one revision of the ledger.
#[derive(Clone, Debug, Default)]
pub struct ClockView {
    /// Revision of the ledger.
    pub revision: u64,
    /// All such containers.
    pub tenants: Vec<Tenant>,
    /// What the driver takes of each card for contexts and graphs, where that is known.
    pub driver_memory: HashMap<CardId, DriverMemory>,
}

/// A container whose use of compute the shim limits.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Nonce that names the container's directories.
    pub nonce: Nonce,
    /// Compute guaranteed on each card, in the order of the limits file.
    pub cards: Vec<(CardId, Cores)>,
    /// Priority where there isn't enough compute for all.
    pub priority: Option<Priority>,
}

/// Clock pages of all cards that containers share.
#[derive(Debug)]
pub struct Clock {
    run_dir: PathBuf,
    watched: Vec<Watched>,
    cards: Vec<Card>,
    /// Interval of samples of cards that several containers share.
    often_ns: u64,
}

/// Starts the thread that writes the pages until `stop`. `view` is asked for what is new since a revision of the ledger.
pub fn start(
    run_dir: PathBuf,
    view: impl FnMut(u64) -> Option<ClockView> + Send + 'static,
    stop: CancellationToken,
) -> std::io::Result<()> {
    // Not joined: it holds nothing that must be given back, and ends within a look.
    thread::Builder::new().name("clock".to_owned()).spawn(move || Clock::new(run_dir).run(view, &stop)).map(drop)
}

/// The first time after `now_ns` that is a multiple of `interval_ns`: what is due at such times is so together, and doesn't
/// drift when it comes late.
fn next(now_ns: u64, interval_ns: u64) -> u64 {
    (now_ns / interval_ns + 1) * interval_ns
}

/// `CLOCK_MONOTONIC`, ns.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1000 * MS + part(now.tv_nsec)
}

fn sleep_until(at_ns: u64) {
    let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let at = Timespec { tv_sec: part(at_ns / (1000 * MS)), tv_nsec: part(at_ns % (1000 * MS)) };
    // Woken early by a signal, the thread finds nothing due.
    if clock_nanosleep_absolute(ClockId::Monotonic, &at).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
}

// === impl Clock ===

impl Clock {
    /// A clock without pages.
    pub fn new(run_dir: PathBuf) -> Self {
        Self { run_dir, watched: Vec::new(), cards: Vec::new(), often_ns: SAMPLE_PERIOD_NS }
    }

    fn run(mut self, mut view: impl FnMut(u64) -> Option<ClockView>, stop: &CancellationToken) {
        // Below every revision of a ledger.
        let mut revision = 0;
        let mut look = 0;
        let mut refresh = 0;
        while !stop.is_cancelled() {
            let now = now_ns();
            if now >= look {
                if let Some(view) = view(revision) {
                    revision = view.revision;
                    self.follow(&view.tenants);
                    self.set_driver_memory(&view.driver_memory);
                    refresh = 0;
                }
                if now >= refresh {
                    self.refresh(now);
                    refresh = now + REFRESH;
                }
                look = next(now, LEDGER);
            }
            sleep_until(self.tick(now).min(look));
        }
    }

    /// Replaces the set of tenants. Open files of tenants that stay are kept.
    pub fn follow(&mut self, tenants: &[Tenant]) {
        let mut known: HashMap<Nonce, Watched> =
            mem::take(&mut self.watched).into_iter().map(|watched| (watched.nonce, watched)).collect();
        let mut cards: BTreeMap<CardId, Card> =
            mem::take(&mut self.cards).into_iter().map(|card| (card.id.clone(), card.without_tenants())).collect();
        for (at, tenant) in tenants.iter().enumerate() {
            let watched = known.remove(&tenant.nonce);
            self.watched.push(watched.unwrap_or_else(|| Watched::new(&self.run_dir, tenant)));
            for (position, (id, cores)) in tenant.cards.iter().enumerate() {
                let card = cards.entry(id.clone()).or_insert_with(|| Card::new(&self.run_dir, id));
                card.add(at, position, *cores, tenant.priority);
            }
        }
        self.cards = cards.into_values().filter(|card| !card.is_deserted()).collect();
        let seats: usize = self.cards.iter().map(Card::seats).sum();
        self.often_ns = if seats > MANY { 2 * SAMPLE_PERIOD_NS } else { SAMPLE_PERIOD_NS };
    }

    /// Sets what the pages say that the driver takes for contexts and graphs, of the cards of which that is known.
    pub fn set_driver_memory(&mut self, memory: &HashMap<CardId, DriverMemory>) {
        for card in &mut self.cards {
            card.driver_memory = memory.get(&card.id).copied().or(card.driver_memory);
        }
    }

    /// Opens files that aren't open or have been replaced.
    pub fn refresh(&mut self, now_ns: u64) {
        self.watched.iter_mut().for_each(Watched::refresh);
        self.cards.iter_mut().for_each(|card| card.refresh(now_ns));
    }

    /// Samples the cards that are due, and returns when the next one is.
    pub fn tick(&mut self, now_ns: u64) -> u64 {
        let Self { watched, cards, often_ns, .. } = self;
        cards.iter_mut().map(|card| card.tick(now_ns, watched, *often_ns)).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
