//! Overhead: memory that the driver charges a container beyond its accounting region, for modules, for what contexts and graphs
//! take beyond what they are charged with, and for whatever else no allocation requests.
//!
//! It is the driver's figure minus the region's, while both are constant. They are never read at the same moment, as the
//! driver's is as old as the last probe of the GPU. So the smallest driver figure and the largest region figure of all
//! measurements within two probes count: memory that is allocated or freed between two readings is not taken for overhead,
//! and no allocation is refused for it; nor for memory that processes open of one another. Managed memory is in the region's
//! figure alone.
//!
//! What is measured so is the least that it can be: a process whose allocations move hides some of it. So the largest figure
//! counts until a whole window has begun after a process has ended, or until nothing has moved for a whole window, which
//! shows what was unloaded too. Where processes come and go within that time it only rises, and nothing counts once all have
//! ended.
//!
//! A container is thus charged the larger of both figures. One that writes too small a figure into its region is charged the
//! difference here, and one that writes too large a figure is refused memory sooner.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use divvy_api::usage::{ContainerUsage, RegionUsage};
use divvy_region::overhead;
use divvy_runtime::logging::WarnOnce;

use super::processes::Identity;
use crate::container::{files, overhead_file};
use divvy_node_core::ledger::Nonce;

#[cfg(test)]
mod tests;

/// Smallest change, in bytes, that is written.
const STEP: u64 = 1 << 20;

/// Overheads of all containers with an accounting region.
pub struct Overheads {
    /// Time over which figures are compared.
    window: Duration,
    of: HashMap<Nonce, Overhead>,
}

/// Overhead of one container.
struct Overhead {
    /// Time of the first measurement, and of the first of the present processes, or of more than these.
    begun: Instant,
    since: Instant,
    processes: Processes,
    cards: Vec<CardOverhead>,
    warning: WarnOnce,
}

/// The present processes of a container.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// Those with a slot of the region: PID in the container, and start time in clock ticks.
    pub slots: HashSet<Identity>,
    /// PIDs on the host of those that the driver reports.
    pub driver: HashSet<u32>,
}

/// Overhead on one card.
#[derive(Default)]
struct CardOverhead {
    /// Measurements of the last window.
    looks: VecDeque<Look>,
    /// Bytes written for the processes.
    written: u64,
    /// Whether a process has ended since, so that it may be less.
    has_ended: bool,
}

/// Bytes of a card at one moment.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    /// `None`: one of the figures isn't known.
    bytes: Option<Bytes>,
}

#[derive(Clone, Copy)]
struct Bytes {
    driver: u64,
    region: u64,
    usage: RegionUsage,
}

/// What a container's only process shows of a card that it doesn't change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Still {
    /// Bytes that the driver charges beyond its allocations: its context, and what was loaded.
    pub(super) beyond: u64,
    /// Bytes that it is charged for contexts.
    pub(super) contexts: u64,
    /// Whether it has launched anything.
    pub(super) has_launched: bool,
}

// === impl Overheads ===

impl Overheads {
    /// Overheads computed over `window`, which should be two probes at least.
    pub fn over(window: Duration) -> Self {
        Self { window, of: HashMap::new() }
    }

    /// Adds a measurement of a container's cards and its processes, writes changed overheads for those, and sets them in `cards`.
    pub fn take(
        &mut self,
        nonce: Nonce,
        cards: &mut [ContainerUsage],
        processes: Processes,
        run_dir: &Path,
        now: Instant,
    ) {
        let path = overhead_file(run_dir, nonce);
        let known = self.of.entry(nonce).or_insert_with(|| Overhead::begin(&path, cards, now));
        known.follow(processes, now);
        known.look(cards, now, self.window);
        if known.processes.is_empty() || now.saturating_duration_since(known.begun) >= self.window {
            let is_whole = now.saturating_duration_since(known.since) >= self.window;
            known.write_changes(&path, cards, is_whole);
        }
        for (card, CardOverhead { written, .. }) in cards.iter_mut().zip(&known.cards) {
            card.overhead_bytes = *written;
        }
    }

    /// What the container's only process has shown of a card, by its number, for a whole window.
    pub(super) fn still(&self, nonce: Nonce, number: usize, now: Instant) -> Option<Still> {
        let known = self.of.get(&nonce)?;
        let is_whole = now.saturating_duration_since(known.since) >= self.window && known.processes.is_single();
        known.cards.get(number).filter(|_| is_whole)?.still()
    }

    /// Forgets all other containers.
    pub(super) fn retain(&mut self, live: &HashSet<Nonce>) {
        self.of.retain(|nonce, _| live.contains(nonce));
    }
}

// === impl Overhead ===

impl Overhead {
    /// Starts with the overheads that an earlier daemon wrote, until there are new ones.
    fn begin(path: &Path, cards: &[ContainerUsage], now: Instant) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let written: HashMap<&str, u64> = overhead::read(&text).into_iter().flatten().collect();
        let bytes = |card: &ContainerUsage| written.get(card.card.as_str()).copied().unwrap_or(0);
        // An earlier daemon may have written it for processes that have ended since.
        let card = |card| CardOverhead { looks: VecDeque::new(), written: bytes(card), has_ended: true };
        let cards = cards.iter().map(card).collect();
        Self { begun: now, since: now, processes: Processes::default(), cards, warning: WarnOnce::default() }
    }

    /// Notes which processes there are. When one has ended, the figure may come down after a window without another end. Until
    /// then measurements from before it make the result smaller, as they may: they have the largest region figure.
    fn follow(&mut self, processes: Processes, now: Instant) {
        if !self.processes.are_all_in(&processes) {
            self.since = now;
            for card in &mut self.cards {
                card.has_ended = true;
            }
        }
        self.processes = processes;
    }

    fn look(&mut self, cards: &[ContainerUsage], now: Instant, window: Duration) {
        for (card, CardOverhead { looks, .. }) in cards.iter().zip(&mut self.cards) {
            let bytes = card.driver_bytes.zip(card.region).map(|(driver, usage)| {
                // The driver may charge what is shared to all who have it.
                let region = usage.used_bytes.saturating_add(usage.imported_bytes).saturating_sub(usage.managed_bytes);
                Bytes { driver, region, usage }
            });
            looks.push_back(Look { at: now, bytes });
            while looks.front().is_some_and(|look| now.saturating_duration_since(look.at) > window) {
                looks.pop_front();
            }
        }
    }

    /// Writes the file, if an overhead has changed. `is_whole`: for a whole window no process has ended.
    fn write_changes(&mut self, path: &Path, cards: &[ContainerUsage], is_whole: bool) {
        let is_over = self.processes.is_empty();
        let measured = |card: &CardOverhead| if is_over { 0 } else { card.to_write(is_whole) };
        let measured: Vec<u64> = self.cards.iter().map(measured).collect();
        let has_changed =
            |(measured, written): (&u64, u64)| measured.abs_diff(written) >= STEP || (*measured == 0 && written > 0);
        if measured.iter().zip(self.cards.iter().map(|card| card.written)).any(has_changed) {
            let mut text = String::new();
            let written = overhead::write(&mut text, cards.iter().map(|card| &card.card).zip(measured.iter().copied()));
            if let Err(error) = written.map_err(io::Error::other).and_then(|()| files::replace(path, text)) {
                let of = cards.first().map(|card| card.of.to_string()).unwrap_or_default();
                self.warning.warn(format!(
                    "{of}: writing the memory overhead of its modules failed: {}: {error}",
                    path.display()
                ));
                return;
            }
            self.warning.clear();
            self.cards.iter_mut().zip(measured).for_each(|(card, measured)| card.written = measured);
        }
        for card in self.cards.iter_mut().filter(|card| is_whole && card.measured().is_some()) {
            card.has_ended = false;
        }
    }
}

// === impl Processes ===

impl Processes {
    fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.driver.is_empty()
    }

    fn is_single(&self) -> bool {
        self.slots.len() == 1 && self.driver.len() == 1
    }

    fn are_all_in(&self, others: &Self) -> bool {
        self.slots.is_subset(&others.slots) && self.driver.is_subset(&others.driver)
    }
}

// === impl CardOverhead ===

impl CardOverhead {
    /// Measurements of the last window, if none is missing.
    fn measured(&self) -> Option<Vec<Bytes>> {
        self.looks.iter().map(|look| look.bytes).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
    }

    /// What the file is to have of the card. `is_whole`: for a whole window no process has ended.
    fn to_write(&self, is_whole: bool) -> u64 {
        match self.beyond() {
            None => self.written,
            Some(beyond) if is_whole && (self.has_ended || self.still().is_some()) => beyond,
            Some(beyond) => beyond.max(self.written),
        }
    }

    /// Overhead from the measurements.
    fn beyond(&self) -> Option<u64> {
        let measured = self.measured()?;
        let driver = measured.iter().map(|bytes| bytes.driver).min()?;
        let region = measured.iter().map(|bytes| bytes.region).max()?;
        Some(driver.saturating_sub(region))
    }

    /// What the measurements show of a process, if they are all alike.
    fn still(&self) -> Option<Still> {
        let measured = self.measured()?;
        let last = measured.last()?;
        let is_alike = |bytes: &Bytes| {
            bytes.driver.abs_diff(last.driver) < STEP
                && bytes.region == last.region
                && bytes.usage.context_bytes == last.usage.context_bytes
        };
        let allocated = last.region.saturating_sub(last.usage.context_bytes);
        let beyond = last.driver.checked_sub(allocated)?;
        measured.iter().all(is_alike).then_some(Still {
            beyond,
            contexts: last.usage.context_bytes,
            has_launched: last.usage.launches > 0,
        })
    }
}
