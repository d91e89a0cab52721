//! What a container's processes have in flight.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use divvy_region::layout::{self, LINE};
use divvy_region::snapshot::{Head, in_flight_ns};

use super::{MS, Tenant};
use crate::delivery::region_file;
use crate::ledger::Nonce;
use crate::tiers::shim::region::{self, Opened};

/// How long the number of slots in use is taken to be what it was: a process that begins is seen so much later.
const HEAD: u64 = 10 * MS;
/// Slots that are read at once, a page of memory. A container with more processes is searched for one that is busy every
/// `HEAD` only, and then looked at where it was: no tenant can have the daemon read more than that each millisecond.
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
    region: Opened,
    inode: u64,
    head_at_ns: u64,
    /// For each card.
    found: Vec<Found>,
}

/// Where in a region somebody was busy.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// First slot of the chunk.
    first: usize,
    searched_at_ns: u64,
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
        if inode.is_some() && self.open.as_ref().map(|open| open.inode) == inode {
            return;
        }
        let opened = region::open(&self.path).ok().filter(|opened| opened.head.cards == self.cards);
        self.open = opened.and_then(|region| {
            let inode = region.file.metadata().ok()?.ino();
            Some(Open { inode, head_at_ns: 0, found: vec![Found::default(); region.head.cards], region })
        });
    }

    /// Whether work is in flight on the card at this position. A region that can't be read any more is closed.
    pub(super) fn is_busy(&mut self, position: usize, now_ns: u64) -> bool {
        let Some(open) = &mut self.open else { return false };
        let is_busy = open.is_busy(position, now_ns);
        if is_busy.is_none() {
            self.open = None;
        }
        is_busy.unwrap_or(false)
    }
}

// === impl Open ===

impl Open {
    fn is_busy(&mut self, position: usize, now_ns: u64) -> Option<bool> {
        let Self { region: Opened { file, head }, head_at_ns, found, .. } = self;
        let cards = head.cards;
        if now_ns >= head_at_ns.saturating_add(HEAD) {
            // Its length may have changed; what isn't there can't be read below.
            *head = region::read_head(file, layout::size(cards)).ok().filter(|head| head.cards == cards)?;
            *head_at_ns = now_ns;
        }
        let found = found.get_mut(position)?;
        let is_busy = |first| chunk_is_busy(file, head, position, first);
        if is_busy(found.first)? {
            return Some(true);
        }
        if now_ns < found.searched_at_ns.saturating_add(HEAD) {
            return Some(false);
        }
        found.searched_at_ns = now_ns;
        for first in (0..head.high).step_by(CHUNK) {
            if is_busy(first)? {
                found.first = first;
                return Some(true);
            }
        }
        Some(false)
    }
}

/// Whether work is in flight in the slots of the chunk that begins with slot `first`.
fn chunk_is_busy(file: &File, head: &Head, position: usize, first: usize) -> Option<bool> {
    let slots = CHUNK.min(head.high.saturating_sub(first));
    let mut lines = [0; LINE * CHUNK];
    let bytes = lines.get_mut(..LINE * slots).filter(|bytes| !bytes.is_empty());
    let Some(bytes) = bytes else { return Some(false) };
    let from = layout::use_bytes(head.cards, position, first).end;
    file.read_exact_at(bytes, from as u64).ok()?;
    Some(in_flight_ns(bytes) > 0)
}
