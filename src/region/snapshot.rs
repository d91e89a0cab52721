//! A region as the daemon reads it: bytes of a file that a tenant can write anything into.
//!
//! The daemon maps no region, for a tenant that cuts its file short would end it by SIGBUS. It reads the file, or the parts
//! that it needs. Values come out as they are; each was true at some moment of the reading, together they need not be.
//! Sums stop at the largest number.
//!
//! To free the slot of a dead process, the daemon writes zeros to the bytes that [`Snapshot::erasure`] names, one after the
//! other, while it holds the slot's lock.

use core::mem::offset_of;
use core::ops::Range;

use crate::clock;
use crate::layout::{self, Card, Header, HeaderFields, InvalidRegion, LINE, SLOTS, Slot, Use};
use crate::slots::{FREE, Owner};

#[cfg(test)]
mod tests;

/// The bytes of a region, checked as far as there is something to check.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    bytes: &'a [u8],
    head: Head,
}

/// What a region says of itself, for a daemon that reads no more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the region's cards.
    pub cards: usize,
    /// Number of the first slots that may be in use, at most [`SLOTS`].
    pub high: usize,
    /// Number of earlier regions of this container: when it changes, counters begin at zero again.
    pub generation: u64,
}

/// What all processes together did and do on a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Time left in the bucket, ns; below zero it is owed.
    pub balance_ns: i64,
    /// Kernels launched, those in graphs not counted.
    pub launches: u64,
    /// Graphs launched.
    pub graph_launches: u64,
    /// Time that launches were held back, ns.
    pub throttled_ns: u64,
    /// Allocations that were granted.
    pub allocs: u64,
    /// Allocations that were refused for lack of memory.
    pub ooms: u64,
    /// Functions of a hooked family that the driver has in a revision which isn't known.
    pub unknown: u64,
    /// The sum of all slots' use.
    pub usage: Usage,
}

/// What one process, or all of them, use of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that are being tried for.
    pub tentative: u64,
    /// Bytes held by allocations.
    pub committed: u64,
    /// Bytes that other processes made, and are charged with.
    pub imported: u64,
    /// Bytes of `committed` that are managed memory: the driver attributes them to no process.
    pub managed: u64,
    /// Bytes of `committed` that contexts are taken to cost.
    pub contexts: u64,
    /// GPU time that launched work is estimated to take yet, ns.
    pub in_flight_ns: u64,
    /// GPU time used so far by processes that still have a slot, ns.
    pub busy_ns: u64,
}

// === impl Head ===

impl Head {
    /// Reads a region's first [`LINE`] bytes, of `length` that it has.
    pub fn read(bytes: &[u8], length: usize) -> Result<Self, InvalidRegion> {
        let Some(header) = Line::at(bytes, 0) else {
            return Err(InvalidRegion::Short { length: bytes.len(), needed: LINE });
        };
        let stated = HeaderFields {
            magic: header.u64(offset_of!(Header, magic)),
            version: header.u32(offset_of!(Header, version)),
            slots: header.u32(offset_of!(Header, slots)),
            size: header.u64(offset_of!(Header, size)),
            cards: header.u32(offset_of!(Header, cards)),
        };
        let cards = stated.check(length)?;
        let high = (header.u32(offset_of!(Header, high)) as usize).min(SLOTS);
        Ok(Self { cards, high, generation: header.u64(offset_of!(Header, generation)) })
    }
}

// === impl Snapshot ===

impl<'a> Snapshot<'a> {
    /// A region's bytes, from its first on.
    pub fn new(bytes: &'a [u8]) -> Result<Self, InvalidRegion> {
        Ok(Self { bytes, head: Head::read(bytes, bytes.len())? })
    }

    /// Number of earlier regions of this container: when it changes, counters begin at zero again.
    pub fn generation(&self) -> u64 {
        self.head.generation
    }

    /// Number of the region's cards.
    pub fn cards(&self) -> usize {
        self.head.cards
    }

    /// Number of the first slots that may be in use, at most [`SLOTS`].
    pub fn high(&self) -> usize {
        self.head.high
    }

    /// The slots that are claimed, by number. Whether their owners live is for the slots' locks to say.
    pub fn owners(self) -> impl Iterator<Item = (usize, Owner)> + 'a {
        (0..self.head.high).filter_map(move |slot| {
            let line = Line::at(self.bytes, layout::slot_bytes(self.head.cards, slot).start)?;
            (line.u32(offset_of!(Slot, state)) != FREE).then(|| (slot, line.owner()))
        })
    }

    /// Usage of `card` by the process of `slot`.
    pub fn usage(&self, card: usize, slot: usize) -> Option<Usage> {
        if card >= self.head.cards || slot >= self.head.high {
            return None;
        }
        Line::at(self.bytes, layout::use_bytes(self.head.cards, card, slot + 1).end - LINE).map(|line| line.usage())
    }

    /// Totals of all processes on `card`.
    pub fn totals(&self, card: usize) -> Option<Totals> {
        let line = (card < self.head.cards).then(|| Line::at(self.bytes, LINE * (1 + card)))??;
        let usages = (0..self.head.high).filter_map(|slot| self.usage(card, slot));
        Some(Totals {
            balance_ns: line.u64(offset_of!(Card, balance_ns)).cast_signed(),
            launches: line.u64(offset_of!(Card, launches)),
            graph_launches: line.u64(offset_of!(Card, graph_launches)),
            throttled_ns: line.u64(offset_of!(Card, throttled_ns)),
            allocs: line.u64(offset_of!(Card, allocs)),
            ooms: line.u64(offset_of!(Card, ooms)),
            unknown: line.u64(offset_of!(Card, unknown)),
            usage: usages.fold(Usage::default(), Usage::plus),
        })
    }

    /// The bytes of the file to overwrite with zeros, in this order, to free `slot`: what it uses first, its identity last,
    /// so that a daemon killed in between leaves a slot that is still dead. None for a slot above [`Snapshot::high`].
    pub fn erasure(&self, slot: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let cards = self.head.cards;
        let lines = (slot < self.head.high).then(|| {
            let uses = (0..cards).map(move |card| layout::use_bytes(cards, card, slot + 1).end - LINE);
            uses.chain([layout::slot_bytes(cards, slot).start])
        });
        lines.into_iter().flatten().map(|start| start..start + LINE)
    }
}

/// The sum of the processes' [`weight`](crate::clock::weight)s, by use lines alone: the bytes of [`layout::use_bytes`], which
/// a daemon that looks often reads instead of the whole. A container that has any is busy.
pub fn weight(uses: &[u8]) -> u32 {
    let lines = (0..uses.len()).step_by(LINE).filter_map(|start| Line::at(uses, start));
    lines.fold(0, |sum: u32, line| sum.saturating_add(clock::weight(line.u64(offset_of!(Use, in_flight_ns)))))
}

// === impl Usage ===

impl Usage {
    fn plus(self, other: Self) -> Self {
        Self {
            tentative: self.tentative.saturating_add(other.tentative),
            committed: self.committed.saturating_add(other.committed),
            imported: self.imported.saturating_add(other.imported),
            managed: self.managed.saturating_add(other.managed),
            contexts: self.contexts.saturating_add(other.contexts),
            in_flight_ns: self.in_flight_ns.saturating_add(other.in_flight_ns),
            busy_ns: self.busy_ns.saturating_add(other.busy_ns),
        }
    }
}

/// The bytes of one line.
struct Line<'a>(&'a [u8; LINE]);

// === impl Line ===

impl<'a> Line<'a> {
    fn at(bytes: &'a [u8], start: usize) -> Option<Self> {
        bytes.get(start..)?.first_chunk().map(Self)
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }

    fn owner(&self) -> Owner {
        Owner {
            pid: self.u32(offset_of!(Slot, pid)),
            started: self.u64(offset_of!(Slot, started)),
            nonce: self.u64(offset_of!(Slot, nonce)),
            comm: self.bytes(offset_of!(Slot, comm)),
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            tentative: self.u64(offset_of!(Use, tentative)),
            committed: self.u64(offset_of!(Use, committed)),
            imported: self.u64(offset_of!(Use, imported)),
            managed: self.u64(offset_of!(Use, managed)),
            contexts: self.u64(offset_of!(Use, contexts)),
            in_flight_ns: self.u64(offset_of!(Use, in_flight_ns)),
            busy_ns: self.u64(offset_of!(Use, busy_ns)),
        }
    }
}
