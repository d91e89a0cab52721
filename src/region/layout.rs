//! The layout of a region, and the checks before any of it is used.
//!
//! Everything is a line of 64 bytes, so that no two writers share a cache line without need:
//!
//! ```text
//!  header │ card 0 … │ slot 0 … 1023 │ card 0: use of slot 0 … 1023 │ card 1: use of slot 0 … 1023 │ …
//! ```
//!
//! Words are in the machine's byte order: a region never leaves its node. Slots never move.

use core::fmt::{self, Display};
use core::ops::Range;

use crate::sync::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The first word of a region: `divvyreg`.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"divvyreg");
/// This layout. Any change of it, or of a protocol on it, is another version.
pub const VERSION: u32 = 2;
/// Processes of one container that can use its cards at the same time.
pub const SLOTS: usize = 1024;
/// [`SLOTS`], as a header states it.
#[expect(clippy::cast_possible_truncation, reason = "it is 1024")]
const SLOTS_WORD: u32 = SLOTS as u32;
/// The most cards of one container.
pub const CARDS: usize = 64;
/// Bytes of a line.
pub const LINE: usize = 64;

/// What a region says of itself. Once the daemon has written it, processes change `high`, `managed_grants` and the words
/// of [`crate::coupling`].
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) slots: AtomicU32,
    pub(crate) size: AtomicU64,
    pub(crate) cards: AtomicU32,
    /// Slots below this number may have been claimed; all others never were.
    pub(crate) high: AtomicU32,
    pub(crate) generation: AtomicU64,
    pub(crate) coupled_until_ns: AtomicU64,
    pub(crate) coupled_ns: AtomicU64,
    /// Reservations of managed memory so far, on all cards: see [`crate::accounts`]. A library that doesn't know it refuses
    /// limits to which it matters.
    pub(crate) managed_grants: AtomicU64,
}

/// What the container's processes share of one card. The time bucket's words are [`crate::bucket`]'s.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Card {
    pub(crate) balance_ns: AtomicI64,
    pub(crate) refilled_at_ns: AtomicU64,
    /// Kernels launched, those in graphs not counted.
    pub launches: Counter,
    /// Graphs launched.
    pub graph_launches: Counter,
    /// Time that launches were held back, ns.
    pub throttled_ns: Counter,
    /// Allocations that were granted.
    pub allocs: Counter,
    /// Allocations that were refused for lack of memory.
    pub ooms: Counter,
    /// Functions of a hooked family that the driver has in a revision which isn't known, and which therefore isn't hooked.
    pub unknown: Counter,
}

/// Who owns a slot: written under the slot's lock only, see [`crate::slots`].
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    pub(crate) state: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) started: AtomicU64,
    pub(crate) nonce: AtomicU64,
    pub(crate) comm: [AtomicU64; 2],
}

/// What the process of one slot uses of one card: written by that process, and zeroed when it is dead.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Use {
    pub(crate) tentative: AtomicU64,
    pub(crate) committed: AtomicU64,
    pub(crate) imported: AtomicU64,
    pub(crate) managed: AtomicU64,
    pub(crate) in_flight_ns: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    /// A launch is held back until this moment, or longer.
    pub(crate) held_until_ns: AtomicU64,
    pub(crate) contexts: AtomicU64,
}

/// A number that only grows, since the region was made, until it wraps at 2⁶⁴.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

/// A region in mapped memory, checked. Free to copy.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    pub(crate) header: &'a Header,
    pub(crate) cards: &'a [Card],
    pub(crate) slots: &'a [Slot],
    /// All slots' use of the first card, then of the second, …
    pub(crate) uses: &'a [Use],
}

/// Why memory, or a file, isn't a region that this version can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidRegion {
    /// The memory does not begin at a multiple of [`LINE`].
    Misaligned {
        /// Where it begins.
        address: usize,
    },
    /// The memory ends before the region that the header describes, or before the end of a header.
    Short {
        /// How long it is, in bytes.
        length: usize,
        /// How long it would have to be.
        needed: usize,
    },
    /// The first word isn't [`MAGIC`].
    Magic(u64),
    /// Another version than [`VERSION`].
    Version(u32),
    /// Another number of slots than [`SLOTS`].
    Slots(u32),
    /// No card, or more than [`CARDS`].
    Cards(u32),
    /// The header states another size than its number of cards needs.
    Size {
        /// What it states, in bytes.
        stated: u64,
        /// What it would have to state.
        needed: usize,
    },
}

/// Bytes of a region for `cards` cards.
pub const fn size(cards: usize) -> usize {
    LINE * (1 + cards + SLOTS + cards * SLOTS)
}

/// The first bytes of a new region for `cards` cards (1 to [`CARDS`]); all that follow, up to [`size`], are zeros.
/// `generation` says how often this container's region was made before: with it all counters began at zero again.
///
/// # Errors
/// [`InvalidRegion::Cards`].
pub fn header(cards: u32, generation: u64) -> Result<[u8; LINE], InvalidRegion> {
    let size = size(cards_of(cards)?) as u64;
    let mut line = [0; LINE];
    let slots = SLOTS_WORD;
    let high = 0_u32;
    let words: [&[u8]; 7] = [
        &MAGIC.to_ne_bytes(),
        &VERSION.to_ne_bytes(),
        &slots.to_ne_bytes(),
        &size.to_ne_bytes(),
        &cards.to_ne_bytes(),
        &high.to_ne_bytes(),
        &generation.to_ne_bytes(),
    ];
    for (byte, value) in line.iter_mut().zip(words.into_iter().flatten()) {
        *byte = *value;
    }
    Ok(line)
}

/// The bytes of a region's file that hold the identity of `slot`, in a region for `cards` cards.
pub const fn slot_bytes(cards: usize, slot: usize) -> Range<usize> {
    let start = LINE * (1 + cards + slot);
    start..start + LINE
}

/// The bytes of a region's file that hold what the first `slots` slots use of `card`, in a region for `cards` cards.
/// A daemon that wants nothing else reads only them: [`crate::snapshot::weight`].
pub const fn use_bytes(cards: usize, card: usize, slots: usize) -> Range<usize> {
    let start = LINE * (1 + cards + SLOTS + card * SLOTS);
    start..start + LINE * slots
}

/// Offset of the in-flight time in a line of [`use_bytes`], for tests that write it themselves.
pub const IN_FLIGHT: usize = core::mem::offset_of!(Use, in_flight_ns);

fn cards_of(stated: u32) -> Result<usize, InvalidRegion> {
    match stated as usize {
        cards @ 1..=CARDS => Ok(cards),
        _ => Err(InvalidRegion::Cards(stated)),
    }
}

/// What a header states, before it is believed.
pub(crate) struct HeaderFields {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) slots: u32,
    pub(crate) size: u64,
    pub(crate) cards: u32,
}

// === impl HeaderFields ===

impl HeaderFields {
    /// How many cards a region of `length` bytes that begins so has.
    pub(crate) fn check(&self, length: usize) -> Result<usize, InvalidRegion> {
        let Self { magic, version, slots, size: stated, cards } = *self;
        if magic != MAGIC {
            return Err(InvalidRegion::Magic(magic));
        }
        if version != VERSION {
            return Err(InvalidRegion::Version(version));
        }
        if slots != SLOTS_WORD {
            return Err(InvalidRegion::Slots(slots));
        }
        let cards = cards_of(cards)?;
        let needed = size(cards);
        if stated != needed as u64 {
            return Err(InvalidRegion::Size { stated, needed });
        }
        if length < needed {
            return Err(InvalidRegion::Short { length, needed });
        }
        Ok(cards)
    }
}

// === impl Region ===

impl<'a> Region<'a> {
    /// The region at `base`, if it is one. The daemon, which makes the file, writes [`header`]'s first word last, so that a file
    /// that is still being made is none.
    ///
    /// # Safety
    /// `length` bytes from `base` are mapped readable and writable, and stay so for `'a`, whatever happens to the file:
    /// one that is cut short takes its pages away, which ends this process by SIGBUS. All who write there, in this process
    /// and in others, do so atomically; other writers of the file do so under the slot's lock, see [`crate::slots`].
    #[cfg(not(loom))]
    #[expect(unsafe_code, reason = "mapped memory becomes references here, and nowhere else")]
    #[expect(clippy::cast_ptr_alignment, reason = "the alignment is checked")]
    pub unsafe fn new(base: *mut u8, length: usize) -> Result<Self, InvalidRegion> {
        let address = base.addr();
        if address == 0 || !address.is_multiple_of(LINE) {
            return Err(InvalidRegion::Misaligned { address });
        }
        if length < LINE {
            return Err(InvalidRegion::Short { length, needed: LINE });
        }
        // SAFETY: `base` is aligned, and the caller vouches for `length` bytes, which a header does not exceed. It is made
        // of atomics alone, for which any bytes are valid and other writers are allowed.
        let header = unsafe { &*base.cast::<Header>() };
        let stated = HeaderFields {
            magic: header.magic.load(Ordering::Acquire),
            version: header.version.load(Ordering::Relaxed),
            slots: header.slots.load(Ordering::Relaxed),
            size: header.size.load(Ordering::Relaxed),
            cards: header.cards.load(Ordering::Relaxed),
        };
        let cards = stated.check(length)?;
        // SAFETY: the checks above found `length` to hold one header, `cards` cards, SLOTS slots and cards × SLOTS uses,
        // all lines of LINE bytes without a gap, so that each array begins aligned and ends within what the caller vouches
        // for. All are made of atomics alone.
        unsafe {
            let lines = base.cast::<[u8; LINE]>();
            Ok(Self {
                header,
                cards: core::slice::from_raw_parts(lines.add(1).cast(), cards),
                slots: core::slice::from_raw_parts(lines.add(1 + cards).cast(), SLOTS),
                uses: core::slice::from_raw_parts(lines.add(1 + cards + SLOTS).cast(), cards * SLOTS),
            })
        }
    }

    /// Number of the region's cards.
    pub fn cards(&self) -> usize {
        self.cards.len()
    }

    /// State of a card that all processes share; cards are numbered as in the limits file.
    pub fn card(&self, card: usize) -> Option<&'a Card> {
        self.cards.get(card)
    }

    /// What all slots use of a card.
    pub(crate) fn uses(&self, card: usize) -> Option<&'a [Use]> {
        let slots = self.slots.len();
        self.uses.get(card.checked_mul(slots)?..)?.get(..slots)
    }
}

// === impl Counter ===

impl Counter {
    /// Counts `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl InvalidRegion ===

impl Display for InvalidRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Misaligned { address } => write!(f, "region at {address:#x}: does not begin at a multiple of {LINE}"),
            Self::Short { length, needed } => write!(f, "region of {length} bytes: {needed} are needed"),
            Self::Magic(magic) => write!(f, "region begins with {magic:#018x}: not a region, or one still being made"),
            Self::Version(version) => write!(f, "region of version {version}: only {VERSION} is known"),
            Self::Slots(slots) => write!(f, "region with {slots} slots: must be {SLOTS}"),
            Self::Cards(cards) => write!(f, "region for {cards} cards: must be 1 to {CARDS}"),
            Self::Size { stated, needed } => write!(f, "region states {stated} bytes: its cards make {needed}"),
        }
    }
}

impl core::error::Error for InvalidRegion {}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{align_of, size_of};
    assert!(size_of::<Header>() == LINE && size_of::<Card>() == LINE);
    assert!(size_of::<Slot>() == LINE && size_of::<Use>() == LINE && align_of::<Use>() == LINE);
};
