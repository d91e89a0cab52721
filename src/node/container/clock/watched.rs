//! What a container's processes have in flight.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use divvy_region::layout::{self, LINE};
use divvy_region::snapshot::in_flight_ns;

use super::{SELDOM, Tenant, next};
use crate::container::directories::region_file;
use crate::container::region;
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
    file: File,
    inode: u64,
    /// How many slots may be in use, when its header was looked at last.
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
        let inode = fs::symlink_metadata(&self.path).ok().map(|found| found.ino());
        if inode.is_none() || self.open.as_ref().map(|open| open.inode) != inode {
            self.open = Open::new(&self.path, self.cards);
        }
    }

    /// Whether work is in flight on the card at this position. A region that can't be read any more is closed.
    pub(super) fn is_busy(&mut self, position: usize, now_ns: u64) -> bool {
        let is_busy = self.open.as_mut().and_then(|open| open.is_busy(position, now_ns));
        if is_busy.is_none() {
            self.open = None;
        }
        is_busy.unwrap_or(false)
    }
}

// === impl Open ===

impl Open {
    fn new(path: &Path, cards: usize) -> Option<Self> {
        let opened = region::open(path).ok().filter(|opened| opened.head.cards == cards)?;
        let inode = opened.file.metadata().ok()?.ino();
        Some(Self { file: opened.file, inode, high: 0, head_due_ns: 0, first: vec![0; cards] })
    }

    fn is_busy(&mut self, position: usize, now_ns: u64) -> Option<bool> {
        let cards = self.first.len();
        if now_ns >= self.head_due_ns {
            // Its length may have changed; what isn't there can't be read below.
            let head = region::read_head(&self.file, layout::size(cards)).ok().filter(|head| head.cards == cards)?;
            (self.high, self.head_due_ns) = (head.high, next(now_ns, HEAD));
        }
        let first = self.first.get_mut(position)?;
        let slots = self.high.saturating_sub(*first).min(CHUNK);
        let mut lines = [0; LINE * CHUNK];
        let uses = lines.get_mut(..LINE * slots)?;
        self.file.read_exact_at(uses, layout::use_bytes(cards, position, *first).end as u64).ok()?;
        let is_busy = in_flight_ns(uses) > 0;
        if !is_busy {
            *first = if *first + CHUNK < self.high { *first + CHUNK } else { 0 };
        }
        Some(is_busy)
    }
}
