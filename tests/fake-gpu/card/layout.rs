//! The bytes of the file.

use std::io;
use std::iter;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::clock;
use crate::mutex::{Robust, Taken};

/// `fakecar1`.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"fakecar1");

/// Processes that a card holds at once.
pub(crate) const SLOTS: usize = 128;

/// Spans that a process may leave unread before it is passed over. It reads at least each millisecond or two while it has
/// work, and two processes that take turns at single kernels of 10 µs fill the ring in 40 ms.
pub(crate) const SPANS: usize = 4096;

/// No process.
pub(crate) const NOBODY: u32 = u32::MAX;

/// The file. All but the slots' `alive` is guarded by `lock`; atomics, because a process may die while it writes.
#[repr(C)]
pub(crate) struct Layout {
    /// [`MAGIC`], written last.
    pub(crate) magic: AtomicU64,
    lock: Robust,
    /// Nanoseconds.
    pub(crate) slice: AtomicU64,
    /// Up to when the card's time is settled.
    pub(crate) at: AtomicU64,
    /// When the holder's slice ends.
    pub(crate) until: AtomicU64,
    /// The slot that has the turn, or [`NOBODY`].
    pub(crate) holder: AtomicU32,
    /// One more than the highest slot ever claimed.
    pub(crate) claimed: AtomicU32,
    pub(crate) slots: [Slot; SLOTS],
}

/// One process.
#[repr(C)]
pub(crate) struct Slot {
    /// Held by a thread of the process that lives as long as the process.
    pub(crate) alive: Robust,
    /// As the process sees it; 0: never claimed. Stays after the process's death, with its counters, until the slot is
    /// claimed again.
    pub(crate) pid: AtomicU32,
    /// Whether the process is on the card.
    pub(crate) present: AtomicU32,
    /// Whether it takes no turns.
    pub(crate) client: AtomicU32,
    spare: AtomicU32,
    /// Bytes.
    pub(crate) memory: AtomicU64,
    /// Bytes, the most so far.
    pub(crate) memory_peak: AtomicU64,
    /// Bytes of `memory` that are managed: whoever needs room evicts them.
    pub(crate) managed: AtomicU64,
    /// Nanoseconds up to which the process wants the card.
    pub(crate) demanded: AtomicU64,
    /// Kernels submitted, also as parts of graphs.
    pub(crate) kernels: AtomicU64,
    /// Launches submitted: a graph is one.
    pub(crate) launches: AtomicU64,
    /// Spans ever written.
    pub(crate) head: AtomicU64,
    /// Spans that the process will not read again.
    pub(crate) tail: AtomicU64,
    pub(crate) spans: [SpanCell; SPANS],
}

/// A [`crate::Span`].
#[repr(C)]
pub(crate) struct SpanCell {
    pub(crate) at: AtomicU64,
    pub(crate) from: AtomicU64,
    pub(crate) to: AtomicU64,
}

/// The card's lock, held.
pub(crate) struct Locked<'l>(&'l Robust);

// === impl Layout ===

impl Layout {
    /// Makes the locks of a file of zeroes, or of one whose maker died.
    pub(crate) fn initialise(&self, slice: u64) -> io::Result<()> {
        self.lock.initialise()?;
        self.slots.iter().try_for_each(|slot| slot.alive.initialise())?;
        self.slice.store(slice, Relaxed);
        self.holder.store(NOBODY, Relaxed);
        self.at.store(clock(), Relaxed);
        Ok(())
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        loop {
            match self.lock.lock() {
                Taken::Free => return Locked(&self.lock),
                Taken::Orphaned => {
                    self.recover();
                    return Locked(&self.lock);
                }
                Taken::Held => {}
            }
        }
    }

    /// Settles what a process left half done that died with the lock: a span may be written that `at` doesn't know.
    fn recover(&self) {
        let written = self.claimed().iter().filter_map(Slot::last_span).map(|span| span.end());
        let at = written.fold(self.at.load(Relaxed), u64::max);
        self.at.store(at, Relaxed);
    }

    /// The slots that were ever claimed.
    pub(crate) fn claimed(&self) -> &[Slot] {
        let claimed = self.claimed.load(Relaxed) as usize;
        self.slots.get(..claimed).unwrap_or(&self.slots)
    }

    /// Bytes that live processes hold.
    pub(crate) fn memory_used(&self) -> u64 {
        let holders = self.claimed().iter().filter(|slot| slot.memory.load(Relaxed) > 0 && slot.is_alive());
        holders.fold(0, |sum, slot| sum.saturating_add(slot.memory.load(Relaxed)))
    }

    /// Evicts managed bytes, so many at least: those of `first` first. Changes nothing if there are fewer.
    pub(crate) fn evict(&self, bytes: u64, first: &Slot) -> bool {
        let others = self.claimed().iter().filter(|slot| !ptr::eq(*slot, first) && slot.is_alive());
        let holders = || iter::once(first).chain(others.clone());
        let evictable = holders().fold(0, |sum: u64, slot| sum.saturating_add(slot.managed.load(Relaxed)));
        if evictable < bytes {
            return false;
        }
        let mut needed = bytes;
        for slot in holders() {
            needed -= slot.evict(needed);
        }
        true
    }
}

// === impl Slot ===

impl Slot {
    /// Evicts managed bytes, at most so many, and says how many.
    pub(crate) fn evict(&self, bytes: u64) -> u64 {
        let (memory, managed) = (self.memory.load(Relaxed), self.managed.load(Relaxed));
        let evicted = bytes.min(managed);
        self.managed.store(managed - evicted, Relaxed);
        self.memory.store(memory.saturating_sub(evicted), Relaxed);
        evicted
    }

    /// Whether the process lives. One that doesn't gives all back. Only for the holder of the card's lock.
    pub(crate) fn is_alive(&self) -> bool {
        if self.present.load(Relaxed) == 0 {
            return false;
        }
        match self.alive.try_lock() {
            Taken::Held => return true,
            Taken::Free | Taken::Orphaned => {}
        }
        self.present.store(0, Relaxed);
        self.memory.store(0, Relaxed);
        self.managed.store(0, Relaxed);
        self.demanded.store(self.served(), Relaxed);
        self.alive.unlock();
        false
    }
}

// === impl Locked ===

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}
