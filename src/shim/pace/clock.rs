//! The daemon's clock page of a card.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use divvy_region::clock::{DriverMemory, Page, Reading};
use divvy_region::layout::LINE;

use crate::limits::CardId;
use crate::process::paths;
use crate::sys::File;

/// How often the page of a card is looked for that isn't there.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// The daemon's page of a card, once there is one.
pub(super) struct Clock {
    page: AtomicPtr<u8>,
    sampled_ns: AtomicU64,
}

// === impl Clock ===

impl Clock {
    pub(super) const fn new() -> Self {
        Self { page: AtomicPtr::new(ptr::null_mut()), sampled_ns: AtomicU64::new(0) }
    }

    /// What the daemon says of the card now. `None`: there is no daemon that says anything.
    #[inline]
    pub(super) fn read(&self, id: Option<CardId>, now_ns: u64) -> Option<Reading> {
        self.page(id, now_ns)?.read()
    }

    /// What the daemon says that the driver takes of the card for contexts and graphs.
    pub(super) fn driver_memory(&self, id: Option<CardId>, now_ns: u64) -> DriverMemory {
        self.page(id, now_ns).map(Page::driver_memory).unwrap_or_default()
    }

    #[inline]
    fn page(&self, id: Option<CardId>, now_ns: u64) -> Option<&'static Page> {
        let page = match self.page.load(Ordering::Acquire) {
            page if page.is_null() => self.map(id, now_ns)?,
            page => page,
        };
        // SAFETY: whatever is kept there was mapped for ever, and only the daemon writes to it.
        unsafe { Page::new(page, LINE) }.ok()
    }

    #[cold]
    fn map(&self, id: Option<CardId>, now_ns: u64) -> Option<*mut u8> {
        let looked = self.sampled_ns.load(Ordering::Relaxed);
        let is_due = looked == 0 || now_ns.saturating_sub(looked) >= LOOK_EVERY_NS;
        if !is_due || self.sampled_ns.compare_exchange(looked, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return None;
        }
        let file = File::open(paths::clock(id?.as_str()).as_c()).ok()?;
        // What is shorter would end this process when it is read.
        if file.length().ok()? < LINE as u64 {
            return None;
        }
        let page = file.map(LINE, false).ok()?;
        self.page.store(page, Ordering::Release);
        Some(page)
    }
}
