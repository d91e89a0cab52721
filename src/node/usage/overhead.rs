//! What the driver charges a container beyond its books: contexts, modules, and whatever else no allocation asks for.
//!
//! It is the driver's figure less that of the books while both stand still. They are never read at the same moment, for the
//! driver's is as old as the last probe of the card. So of all looks in the time of two probes, the least that the driver
//! said counts, and the most that the books said: what is allocated or freed between two readings is taken for nobody's
//! context, and nobody is refused memory for it; nor for what processes open of one another.
//!
//! What a container takes is thus what its books say or what the driver says, whichever is more. Who writes less than the
//! truth into its books is charged for the difference here, and who writes more is refused the sooner.

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

/// A change of less, in bytes, is told to nobody.
const STEP: u64 = 1 << 20;

/// Of all containers whose processes count it.
pub(super) struct Overheads {
    /// The time over which figures are compared.
    window: Duration,
    of: HashMap<Nonce, Overhead>,
}

/// Of one container.
struct Overhead {
    /// When it was looked at first.
    since: Instant,
    /// The looks of the last window, and bytes that its processes were told, by card.
    cards: Vec<(VecDeque<Look>, u64)>,
    warning: WarnOnce,
}

/// Bytes of a card at one moment.
struct Look {
    at: Instant,
    driver: u64,
    books: u64,
}

// === impl Overheads ===

impl Overheads {
    /// Compares figures over so long, which should be two probes at least.
    pub(super) fn over(window: Duration) -> Self {
        Self { window, of: HashMap::new() }
    }

    /// Takes what is seen now of a container's cards, tells its processes what has changed, and enters what they were told.
    pub(super) fn take(&mut self, nonce: Nonce, cards: &mut [ContainerUsage], run_dir: &Path, now: Instant) {
        let path = overhead_file(run_dir, nonce);
        let known = self.of.entry(nonce).or_insert_with(|| Overhead::begin(&path, cards, now));
        known.look(cards, now, self.window);
        if now.saturating_duration_since(known.since) >= self.window {
            known.tell(&path, cards);
        }
        for (card, (_, told)) in cards.iter_mut().zip(&known.cards) {
            card.overhead_bytes = *told;
        }
    }

    /// Forgets all other containers.
    pub(super) fn retain(&mut self, live: &HashSet<Nonce>) {
        self.of.retain(|nonce, _| live.contains(nonce));
    }
}

// === impl Overhead ===

impl Overhead {
    /// What a daemon before us told them stands until we know better.
    fn begin(path: &Path, cards: &[ContainerUsage], now: Instant) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let told: HashMap<&str, u64> = overhead::read(&text).into_iter().flatten().collect();
        let bytes = |card: &ContainerUsage| told.get(card.card.as_str()).copied().unwrap_or(0);
        let cards = cards.iter().map(|card| (VecDeque::new(), bytes(card))).collect();
        Self { since: now, cards, warning: WarnOnce::default() }
    }

    fn look(&mut self, cards: &[ContainerUsage], now: Instant, window: Duration) {
        for (card, (looks, _)) in cards.iter().zip(&mut self.cards) {
            if let (Some(driver), Some(books)) = (card.driver_bytes, card.books) {
                // The driver may charge what is shared to all who have it.
                let books = books.used_bytes.saturating_add(books.imported_bytes);
                looks.push_back(Look { at: now, driver, books });
            }
            while looks.front().is_some_and(|look| now.saturating_duration_since(look.at) > window) {
                looks.pop_front();
            }
        }
    }

    /// Writes the file, if there is something new for it.
    fn tell(&mut self, path: &Path, cards: &[ContainerUsage]) {
        let measured: Vec<u64> = self.cards.iter().map(|(looks, _)| beyond(looks)).collect();
        let is_news = |(measured, told): (&u64, u64)| measured.abs_diff(told) >= STEP || (*measured == 0 && told > 0);
        if !measured.iter().zip(self.cards.iter().map(|(_, told)| *told)).any(is_news) {
            return;
        }
        let mut text = String::new();
        let written = overhead::write(&mut text, cards.iter().map(|card| &card.card).zip(measured.iter().copied()));
        match written.map_err(io::Error::other).and_then(|()| files::replace(path, text)) {
            Ok(()) => {
                self.cards.iter_mut().zip(measured).for_each(|((_, told), measured)| *told = measured);
                self.warning.clear();
            }
            Err(error) => {
                let of = cards.first().map(|card| card.of.to_string()).unwrap_or_default();
                self.warning.warn(format!("{of}: can't tell it what its contexts take: {}: {error}", path.display()));
            }
        }
    }
}

/// What isn't known is charged to nobody.
fn beyond(looks: &VecDeque<Look>) -> u64 {
    let driver = looks.iter().map(|look| look.driver).min().unwrap_or(0);
    let books = looks.iter().map(|look| look.books).max().unwrap_or(0);
    driver.saturating_sub(books)
}
