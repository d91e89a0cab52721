//! Overhead: memory that the driver charges a container beyond its accounting region, for contexts, modules, and whatever else
//! no allocation requests.
//!
//! It is the driver's figure minus the region's, while both are constant. They are never read at the same moment, as the
//! driver's is as old as the last probe of the GPU. So the smallest driver figure and the largest region figure of all
//! measurements within two probes count: memory that is allocated or freed between two readings is not taken for overhead,
//! and no allocation is refused for it; nor for memory that processes open of one another.
//!
//! A container is thus charged the larger of both figures. One that writes too small a figure into its region is charged the
//! difference here, and one that writes too large a figure is refused memory sooner.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use divvy_api::usage::ContainerUsage;
use divvy_region::overhead;
use divvy_runtime::logging::WarnOnce;

use crate::container::{files, overhead_file};
use divvy_node_core::ledger::Nonce;

#[cfg(test)]
mod tests;

/// Smallest change, in bytes, that is written.
const STEP: u64 = 1 << 20;

/// Overheads of all containers with an accounting region.
pub(super) struct Overheads {
    /// Time over which figures are compared.
    window: Duration,
    of: HashMap<Nonce, Overhead>,
}

/// Overhead of one container.
struct Overhead {
    /// Time of the first measurement.
    since: Instant,
    /// Measurements of the last window, and bytes written for the processes, by card.
    cards: Vec<(VecDeque<Look>, u64)>,
    warning: WarnOnce,
}

/// Bytes of a card at one moment.
struct Look {
    at: Instant,
    driver: u64,
    region: u64,
}

// === impl Overheads ===

impl Overheads {
    /// Overheads computed over `window`, which should be two probes at least.
    pub(super) fn over(window: Duration) -> Self {
        Self { window, of: HashMap::new() }
    }

    /// Adds a measurement of a container's cards, writes changed overheads for its processes, and sets them in `cards`.
    pub(super) fn take(&mut self, nonce: Nonce, cards: &mut [ContainerUsage], run_dir: &Path, now: Instant) {
        let path = overhead_file(run_dir, nonce);
        let known = self.of.entry(nonce).or_insert_with(|| Overhead::begin(&path, cards, now));
        known.look(cards, now, self.window);
        if now.saturating_duration_since(known.since) >= self.window {
            known.write_changes(&path, cards);
        }
        for (card, (_, written)) in cards.iter_mut().zip(&known.cards) {
            card.overhead_bytes = *written;
        }
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
        let cards = cards.iter().map(|card| (VecDeque::new(), bytes(card))).collect();
        Self { since: now, cards, warning: WarnOnce::default() }
    }

    fn look(&mut self, cards: &[ContainerUsage], now: Instant, window: Duration) {
        for (card, (looks, _)) in cards.iter().zip(&mut self.cards) {
            if let (Some(driver), Some(region)) = (card.driver_bytes, card.region) {
                // The driver may charge what is shared to all who have it.
                let region = region.used_bytes.saturating_add(region.imported_bytes);
                looks.push_back(Look { at: now, driver, region });
            }
            while looks.front().is_some_and(|look| now.saturating_duration_since(look.at) > window) {
                looks.pop_front();
            }
        }
    }

    /// Writes the file, if an overhead has changed.
    fn write_changes(&mut self, path: &Path, cards: &[ContainerUsage]) {
        let measured: Vec<u64> = self.cards.iter().map(|(looks, _)| beyond(looks)).collect();
        let has_changed =
            |(measured, written): (&u64, u64)| measured.abs_diff(written) >= STEP || (*measured == 0 && written > 0);
        if !measured.iter().zip(self.cards.iter().map(|(_, written)| *written)).any(has_changed) {
            return;
        }
        let mut text = String::new();
        let written = overhead::write(&mut text, cards.iter().map(|card| &card.card).zip(measured.iter().copied()));
        match written.map_err(io::Error::other).and_then(|()| files::replace(path, text)) {
            Ok(()) => {
                self.cards.iter_mut().zip(measured).for_each(|((_, written), measured)| *written = measured);
                self.warning.clear();
            }
            Err(error) => {
                let of = cards.first().map(|card| card.of.to_string()).unwrap_or_default();
                self.warning.warn(format!(
                    "{of}: writing the memory overhead of its contexts failed: {}: {error}",
                    path.display()
                ));
            }
        }
    }
}

/// Overhead from the measurements; 0 without any.
fn beyond(looks: &VecDeque<Look>) -> u64 {
    let driver = looks.iter().map(|look| look.driver).min().unwrap_or(0);
    let region = looks.iter().map(|look| look.region).max().unwrap_or(0);
    driver.saturating_sub(region)
}
