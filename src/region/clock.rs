//! The daemon's page of one card: which of the card's tenants are busy.
//!
//! A card serves processes in turns: each for a time slice, or until it has no more work. Two that always have work see it
//! take twice as long; beside one that has work for a tenth of a slice, the other has nearly all of the card. So each has a
//! [`weight`], by the work that it has, and [`Turns`] says what time costs. Containers map the page
//! read-only; the daemon looks each [`SAMPLE_PERIOD_NS`], and writes it.
//!
//! When it looks must not depend on what it sees: looked at seldom while one is busy and often while two are, the time of two
//! seems to have been one's.
//!
//! It says too what the driver takes of the card for contexts and graphs, which programs are charged when they make them.
//!
//! A reader that cannot get a consistent page in a few tries, and one whose daemon has been silent for 100 ms, counts time
//! in full: that is never too little.

use crate::bucket::Share;
use crate::layout::{InvalidRegion, LINE};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, spin_loop};
use crate::terms::{Compute, Priority};

#[cfg(all(test, not(loom)))]
mod tests;
mod turns;

pub use turns::{Turns, Weights};

/// The first word of a page: `divvyclk`.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"divvyclk");
/// This layout.
pub const VERSION: u32 = 3;
/// How long a card serves a process before the next one. It is assumed, not read: 2.07 ms on an H100 with driver 580.
pub const TIME_SLICE_NS: u64 = 2_000_000;
/// The [`weight`] of a process that always has work.
pub const FULL_WEIGHT: u32 = 256;
/// How often the daemon samples which containers are busy on a card, ns. No multiple of a millisecond, to which programs
/// align: what is periodic must be sampled in every phase of its period (so milliseconds times the golden ratio).
pub const SAMPLE_PERIOD_NS: u64 = 3_236_068;
/// Longest use of a page without a new heartbeat, ns.
pub const STALE_AFTER_NS: u64 = 100_000_000;

/// The share of a low-priority container without a guarantee while one of high priority is busy, in parts of 10 000: enough
/// to finish its work and to answer health checks.
pub const MIN_PARTS: u32 = 100;

/// Tries to read what the daemon doesn't change meanwhile. It writes for some nanoseconds each [`SAMPLE_PERIOD_NS`].
const TRIES: u32 = if cfg!(loom) { 2 } else { 64 };

/// The page, one line of [`LINE`] bytes.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Page {
    magic: AtomicU64,
    version: AtomicU32,
    /// Odd while the rest is being changed.
    sequence: AtomicU32,
    heartbeat_ns: AtomicU64,
    /// [`Busy`] in three words.
    busy: [AtomicU64; 3],
    /// [`DriverMemory`]; each word stands for itself.
    context_bytes: AtomicU64,
    graph_node_bytes: AtomicU64,
}

/// What the driver takes of a card for what a program makes there, beside what it allocates. Zeros: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverMemory {
    /// Bytes of a context.
    pub context_bytes: u64,
    /// Bytes of each node of an executable graph.
    pub graph_node_bytes: u64,
}

/// What is busy on a card. A page has 16 bits for each number of containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// Containers that have work in flight.
    pub tenants: u32,
    /// The sum of the [`weight`]s of their processes.
    pub weight: u32,
    /// The sum of their guaranteed shares, in parts of 10 000 of the card.
    pub guaranteed: u32,
    /// Busy tenants without a guaranteed share.
    pub unguaranteed: u32,
    /// Busy tenants with high priority.
    pub high: u32,
    /// The guaranteed shares of those with low priority; part of `guaranteed`.
    pub low_guaranteed: u32,
    /// Busy tenants with low priority and no guaranteed share; part of `unguaranteed`.
    pub low_unguaranteed: u32,
}

/// A page as it was at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// That moment, by `CLOCK_MONOTONIC` of the node, ns: the daemon's last sign of life.
    pub heartbeat_ns: u64,
    /// Busy tenants from then on.
    pub busy: Busy,
}

/// The part of a time slice that a process has work for which is estimated to take so long, in parts of [`FULL_WEIGHT`]: at
/// least one, if it has any. Half a slice counts as a whole one: work comes on average in the middle of another's slice, so
/// that its process waits for half a slice less.
pub fn weight(in_flight_ns: u64) -> u32 {
    let parts = u64::from(FULL_WEIGHT) * in_flight_ns.min(TIME_SLICE_NS / 2) / (TIME_SLICE_NS / 2);
    u32::try_from(parts).unwrap_or(FULL_WEIGHT).max(u32::from(in_flight_ns > 0))
}

/// A container's guaranteed share of a card, and what it may have beyond that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// The guaranteed share; 0: none.
    pub share: Share,
    /// Whether it may use time that others leave idle.
    pub compute: Compute,
    /// The most that it has in all; never less than its guaranteed share.
    pub limit: Share,
    /// Order in which idle time is given where there isn't enough for all.
    pub priority: Option<Priority>,
}

/// The daemon's side of a page; a page has one.
#[derive(Debug)]
pub struct Writer<'a> {
    page: &'a Page,
    last: Reading,
}

// === impl Page ===

impl Page {
    /// The page at `base`, if it is one.
    ///
    /// # Safety
    /// `length` bytes from `base` are mapped, and stay so for `'a`; all writers write atomically.
    #[cfg(not(loom))]
    #[expect(unsafe_code, reason = "mapped memory becomes a reference here")]
    pub unsafe fn new<'a>(base: *const u8, length: usize) -> Result<&'a Self, InvalidRegion> {
        // SAFETY: the caller's guarantee.
        let page = unsafe { Self::blank(base, length) }?;
        match (page.magic.load(Ordering::Acquire), page.version.load(Ordering::Relaxed)) {
            (MAGIC, VERSION) => Ok(page),
            (MAGIC, version) => Err(InvalidRegion::Version(version)),
            (magic, _) => Err(InvalidRegion::Magic(magic)),
        }
    }

    /// The memory at `base` as a page, whatever it holds, for a [`Writer`] to begin on.
    ///
    /// # Safety
    /// As [`Page::new`], and for a writer mapped writable.
    #[cfg(not(loom))]
    #[expect(unsafe_code, reason = "mapped memory becomes a reference here")]
    #[expect(clippy::cast_ptr_alignment, reason = "the alignment is checked")]
    pub unsafe fn blank<'a>(base: *const u8, length: usize) -> Result<&'a Self, InvalidRegion> {
        let address = base.addr();
        if address == 0 || !address.is_multiple_of(LINE) {
            return Err(InvalidRegion::Misaligned { address });
        }
        if length < LINE {
            return Err(InvalidRegion::Short { length, needed: LINE });
        }
        // SAFETY: aligned and long enough, as was checked, and mapped, as the caller vouches. A page is made of atomics
        // alone, for which any bytes are valid and other writers are allowed; nobody writes through the pointer where the
        // mapping is read-only, for only a `Writer` writes.
        Ok(unsafe { &*base.cast::<Self>() })
    }

    /// The page as it is now, if the daemon wasn't changing it throughout: a daemon that died in the middle is so for ever,
    /// until the next one begins.
    pub fn read(&self) -> Option<Reading> {
        for _ in 0..TRIES {
            let before = self.sequence.load(Ordering::Acquire);
            let reading = self.reading();
            // Keeps the loads above it from being delayed past the one below.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return Some(reading);
            }
            spin_loop();
        }
        None
    }

    /// What the driver takes of the card for contexts and graphs.
    pub fn driver_memory(&self) -> DriverMemory {
        DriverMemory {
            context_bytes: self.context_bytes.load(Ordering::Relaxed),
            graph_node_bytes: self.graph_node_bytes.load(Ordering::Relaxed),
        }
    }

    fn reading(&self) -> Reading {
        Reading {
            heartbeat_ns: self.heartbeat_ns.load(Ordering::Relaxed),
            busy: Busy::of_words(self.busy.each_ref().map(|word| word.load(Ordering::Relaxed))),
        }
    }
}

// === impl Busy ===

impl Busy {
    /// Counts one more busy container, by the sum of its processes' weights, with a guaranteed share, or none.
    pub fn add(&mut self, weight: u32, guaranteed: Share, priority: Option<Priority>) {
        let parts = guaranteed.parts();
        let nothing = u32::from(guaranteed.parts() == 0);
        self.tenants = self.tenants.saturating_add(1);
        self.weight = self.weight.saturating_add(weight);
        self.guaranteed = self.guaranteed.saturating_add(parts);
        self.unguaranteed = self.unguaranteed.saturating_add(nothing);
        match priority {
            None => {}
            Some(Priority::High) => self.high = self.high.saturating_add(1),
            Some(Priority::Low) => {
                self.low_guaranteed = self.low_guaranteed.saturating_add(parts);
                self.low_unguaranteed = self.low_unguaranteed.saturating_add(nothing);
            }
        }
    }

    fn words(&self) -> [u64; 3] {
        let counts = [self.tenants, self.unguaranteed, self.high, self.low_unguaranteed];
        let counts = counts.into_iter().rev().fold(0, |word, count| word << 16 | u64::from(count.min(0xffff)));
        [self.weight.into(), counts, u64::from(self.low_guaranteed) << 32 | u64::from(self.guaranteed)]
    }

    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    fn of_words([weight, counts, parts]: [u64; 3]) -> Self {
        let count = |shift: u32| (counts >> shift & 0xffff) as u32;
        Self {
            tenants: count(0),
            weight: weight as u32,
            guaranteed: parts as u32,
            unguaranteed: count(16),
            high: count(32),
            low_guaranteed: (parts >> 32) as u32,
            low_unguaranteed: count(48),
        }
    }
}

// === impl Reading ===

impl Reading {
    /// Whether the daemon has been silent for too long for the page to be believed.
    pub fn is_stale(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.heartbeat_ns) > STALE_AFTER_NS
    }

    /// What a container may use of the card now.
    ///
    /// One without a guarantee gets what is not guaranteed to busy tenants, divided among those like it; nothing where all is
    /// guaranteed to busy ones. When the page is stale, nobody bursts.
    pub fn share(&self, entitlement: Entitlement, now_ns: u64) -> Share {
        let Entitlement { share, limit, .. } = entitlement;
        Share::from_parts(self.unlimited(entitlement, now_ns).parts().min(limit.parts()).max(share.parts()))
    }

    fn unlimited(&self, Entitlement { share, compute, priority, limit: _ }: Entitlement, now_ns: u64) -> Share {
        let Busy { mut guaranteed, mut unguaranteed, high, low_guaranteed, low_unguaranteed, .. } = self.busy;
        let mut whole = Share::WHOLE.parts();
        if high > 0 {
            if priority == Some(Priority::Low) {
                return if share.parts() == 0 { Share::from_parts(MIN_PARTS) } else { share };
            }
            // The others divide what those who make way leave.
            whole = whole.saturating_sub(low_guaranteed).saturating_sub(low_unguaranteed.saturating_mul(MIN_PARTS));
            guaranteed = guaranteed.saturating_sub(low_guaranteed);
            unguaranteed = unguaranteed.saturating_sub(low_unguaranteed);
        }
        if share.parts() == 0 {
            return Share::from_parts(whole.saturating_sub(guaranteed) / unguaranteed.max(1));
        }
        if compute == Compute::Cap || self.is_stale(now_ns) {
            return share;
        }
        // It may not have been seen busy yet, then its own guarantee isn't in the sum.
        let competing = guaranteed.min(whole).max(share.parts());
        Share::from_parts((share.parts() * whole / competing).max(share.parts()))
    }
}

// === impl Writer ===

impl<'a> Writer<'a> {
    /// Makes a page, or goes on with the one that an earlier daemon left, by what that one said last.
    pub fn new(page: &'a Page, now_ns: u64) -> Self {
        let known = page.magic.load(Ordering::Relaxed) == MAGIC && page.version.load(Ordering::Relaxed) == VERSION;
        let mut writer = Self { page, last: if known { page.reading() } else { Reading::default() } };
        if !known {
            writer.last.heartbeat_ns = now_ns;
        }
        writer.publish(now_ns, writer.last.busy);
        page.version.store(VERSION, Ordering::Relaxed);
        page.magic.store(MAGIC, Ordering::Release);
        writer
    }

    /// Says from now on what the driver takes of the card for contexts and graphs.
    pub fn set_driver_memory(&mut self, memory: DriverMemory) {
        self.page.context_bytes.store(memory.context_bytes, Ordering::Relaxed);
        self.page.graph_node_bytes.store(memory.graph_node_bytes, Ordering::Relaxed);
    }

    /// So many are found busy at `now_ns`.
    pub fn publish(&mut self, now_ns: u64, busy: Busy) {
        self.last = Reading { heartbeat_ns: now_ns.max(self.last.heartbeat_ns), busy };
        let page = self.page;
        // Odd already, if an earlier daemon died in the middle.
        let odd = page.sequence.load(Ordering::Relaxed) | 1;
        page.sequence.store(odd, Ordering::Relaxed);
        // Keeps the stores below from being seen before the one above.
        fence(Ordering::Release);
        page.heartbeat_ns.store(self.last.heartbeat_ns, Ordering::Relaxed);
        for (word, value) in page.busy.iter().zip(busy.words()) {
            word.store(value, Ordering::Relaxed);
        }
        page.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }
}
