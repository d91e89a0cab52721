//! Work in flight of a container's processes.

use std::path::{Path, PathBuf};

use divvy_region::layout::LINE;
use divvy_region::snapshot::weight;

use super::{SELDOM, Tenant, next};
use crate::container::directories::region_file;
use crate::container::region::RegionReader;
use divvy_node_core::ledger::Nonce;

/// How long the number of slots in use is taken to be what it was. A process has a slot long before it has work.
const HEAD: u64 = 4 * SELDOM;
/// Slots that are looked at at once, a page of memory. In a container with more processes the next ones are looked at next
/// time, until one is found that is busy: no tenant can have the daemon read more than that.
const CHUNK: usize = 64;

/// One container's region.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) nonce: Nonce,
    path: PathBuf,
    cards: usize,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    region: RegionReader,
    /// How many slots may be in use, by the header as last read.
    high: usize,
    head_due_ns: u64,
    /// For each card, the first slot to look at next.
    first: Vec<usize>,
}

// === impl Watched ===

impl Watched {
    pub(super) fn new(run_dir: &Path, tenant: &Tenant) -> Self {
        let path = region_file(run_dir, tenant.nonce);
        Self { nonce: tenant.nonce, path, cards: tenant.cards.len(), open: None }
    }

    /// Opens the region, unless that very file is open.
    pub(super) fn refresh(&mut self) {
        let known = self.open.as_ref().map(|open| &open.region);
        match RegionReader::open(&self.path, self.cards, known) {
            Ok(None) => {}
            opened => self.open = opened.ok().flatten().map(|region| Open::new(region, self.cards)),
        }
    }

    /// Weight of the container on the card at this position; 0: no work is in flight. A region that can't be read any more is
    /// closed.
    pub(super) fn weight(&mut self, position: usize, now_ns: u64) -> u32 {
        let weight = self.open.as_mut().and_then(|open| open.weight(position, now_ns));
        if weight.is_none() {
            self.open = None;
        }
        weight.unwrap_or(0)
    }
}

// === impl Open ===

impl Open {
    fn new(region: RegionReader, cards: usize) -> Self {
        Self { region, high: 0, head_due_ns: 0, first: vec![0; cards] }
    }

    fn weight(&mut self, position: usize, now_ns: u64) -> Option<u32> {
        if now_ns >= self.head_due_ns {
            self.high = self.region.head().ok()?.high;
            self.head_due_ns = next(now_ns, HEAD);
        }
        let first = self.first.get_mut(position)?;
        let slots = self.high.saturating_sub(*first).min(CHUNK);
        let mut lines = [0; LINE * CHUNK];
        let uses = lines.get_mut(..LINE * slots)?;
        self.region.read_uses(position, *first, uses).ok()?;
        let weight = weight(uses);
        if weight == 0 {
            *first = if *first + CHUNK < self.high { *first + CHUNK } else { 0 };
        }
        Some(weight)
    }
}
