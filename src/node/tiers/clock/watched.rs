//! What a container's processes have in flight.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use divvy_region::layout::{self, LINE};
use divvy_region::map::{Part, TenantRegion};
use divvy_region::snapshot::{Head, in_flight_ns};

use super::{SELDOM, Tenant, next};
use crate::delivery::region_file;
use crate::ledger::Nonce;
use crate::tiers::shim::region;

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
    region: TenantRegion,
    inode: u64,
    /// How many slots may be in use, when its header was looked at last.
    high: usize,
    head_due_ns: u64,
    /// For each card.
    seen: Vec<Seen>,
}

/// What was seen of a card last.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    is_busy: bool,
    /// The first slot to look at next.
    first: usize,
}

// === impl Watched ===

impl Watched {
    pub(super) fn new(run_dir: &Path, tenant: &Tenant) -> Self {
        let path = region_file(run_dir, tenant.nonce);
        Self { nonce: tenant.nonce, path, cards: tenant.cards.len(), open: None }
    }

    /// Maps the region, unless that very file is mapped.
    pub(super) fn refresh(&mut self) {
        let inode = fs::symlink_metadata(&self.path).ok().map(|found| found.ino());
        if inode.is_none() || self.open.as_ref().map(|open| open.inode) != inode {
            self.open = Open::new(&self.path, self.cards);
        }
    }

    /// What to look at to see whether the card at this position is busy: the region's header, if that is due, and some slots'
    /// use.
    pub(super) fn parts(&self, position: usize, now_ns: u64) -> Option<[Part<'_>; 2]> {
        self.open.as_ref()?.parts(position, now_ns)
    }

    /// Takes in what stood there. A region that can't be read any more is closed.
    pub(super) fn see(&mut self, position: usize, parts: [Option<&[u8]>; 2], now_ns: u64) {
        if self.open.as_mut().and_then(|open| open.see(position, parts, now_ns)).is_none() {
            self.open = None;
        }
    }

    /// Whether work was in flight on the card at this position when it was looked at last.
    pub(super) fn is_busy(&self, position: usize) -> bool {
        self.open.as_ref().and_then(|open| open.seen.get(position)).is_some_and(|seen| seen.is_busy)
    }
}

// === impl Open ===

impl Open {
    fn new(path: &Path, cards: usize) -> Option<Self> {
        let opened = region::open(path).ok().filter(|opened| opened.head.cards == cards)?;
        let inode = opened.file.metadata().ok()?.ino();
        let region = TenantRegion::map(opened.file.as_raw_fd(), layout::size(cards)).ok()?;
        Some(Self { region, inode, high: opened.head.high, head_due_ns: 0, seen: vec![Seen::default(); cards] })
    }

    fn parts(&self, position: usize, now_ns: u64) -> Option<[Part<'_>; 2]> {
        let first = self.seen.get(position)?.first;
        let head = 0..if now_ns < self.head_due_ns { 0 } else { LINE };
        let end_of = |slots| layout::use_bytes(self.seen.len(), position, slots).end;
        let uses = end_of(first)..end_of(self.high.clamp(first, first + CHUNK));
        Some([self.region.part(head), self.region.part(uses)])
    }

    fn see(&mut self, position: usize, [head, uses]: [Option<&[u8]>; 2], now_ns: u64) -> Option<()> {
        let (head, cards) = (head?, self.seen.len());
        if !head.is_empty() {
            let head = Head::read(head, layout::size(cards)).ok().filter(|head| head.cards == cards)?;
            (self.high, self.head_due_ns) = (head.high, next(now_ns, SELDOM));
        }
        let seen = self.seen.get_mut(position)?;
        seen.is_busy = in_flight_ns(uses?) > 0;
        if !seen.is_busy {
            let next = seen.first + CHUNK;
            seen.first = if next < self.high { next } else { 0 };
        }
        Some(())
    }
}
