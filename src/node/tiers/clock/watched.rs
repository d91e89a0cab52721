//! What a container's processes have in flight.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use divvy_contract::container::REGION_FILE;
use divvy_region::layout::{self, LINE};
use divvy_region::snapshot::in_flight_ns;

use super::{MS, Tenant};
use crate::ledger::Nonce;
use crate::tiers::shim::region::{self, Opened};

/// How long the number of slots in use is taken to be what it was: a process that begins is seen so much later.
const HEAD: u64 = 10 * MS;
/// Slots that are read at once, a page of memory.
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
}

// === impl Watched ===

impl Watched {
    pub(super) fn new(run_dir: &Path, tenant: &Tenant) -> Self {
        let path = run_dir.join("containers").join(tenant.nonce.to_string()).join("region").join(REGION_FILE);
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
            Some(Open { region, inode, head_at_ns: 0 })
        });
    }

    /// Whether work is in flight on the card at this position. A region that can't be read any more is closed.
    pub(super) fn is_busy(&mut self, position: usize, now_ns: u64) -> bool {
        let Some(open) = &mut self.open else { return false };
        let is_busy = open.is_busy(self.cards, position, now_ns);
        if is_busy.is_none() {
            self.open = None;
        }
        is_busy.unwrap_or(false)
    }
}

// === impl Open ===

impl Open {
    fn is_busy(&mut self, cards: usize, position: usize, now_ns: u64) -> Option<bool> {
        let Opened { file, head } = &mut self.region;
        if now_ns >= self.head_at_ns.saturating_add(HEAD) {
            // Its length may have changed; what isn't there can't be read below.
            *head = region::read_head(file, layout::size(cards)).ok().filter(|head| head.cards == cards)?;
            self.head_at_ns = now_ns;
        }
        let mut lines = [0; LINE * CHUNK];
        for first in (0..head.high).step_by(CHUNK) {
            let slots = CHUNK.min(head.high - first);
            let bytes = lines.get_mut(..LINE * slots)?;
            let from = layout::use_bytes(cards, position, first).end;
            file.read_exact_at(bytes, from as u64).ok()?;
            if in_flight_ns(bytes) > 0 {
                return Some(true);
            }
        }
        Some(false)
    }
}
