//! Resources that the driver has given this process, addresses and handles, and what they are charged with.
//!
//! A table without a heap. It is cut into shards by the hash of the key, each with a lock and with memory of its own, which
//! is asked for when the first resource comes and costs nothing until it is touched. A shard never grows or moves; a resource
//! that finds its shard full can't be held, and the caller has to give it back to the driver.

use core::ptr;
use core::slice;

use crate::cuda::CUcontext;
use crate::lock::{Held, Lock};
use crate::sys;

/// What this process holds.
pub(super) static RESOURCES: Resources = Resources::new();

/// What a key is, as equal numbers may be addresses and handles of several kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A device address.
    Memory,
    Array,
    MipmappedArray,
    /// A handle to physical memory; `of` says which.
    Handle,
    /// An address at which physical memory is mapped; `of` says which, `bytes` how much of it.
    Mapping,
    /// Physical memory, by a number that this library gives it; `of` counts what refers to it.
    Physical,
    /// An address at which another process's memory is open; `of` says how often.
    Import,
    /// A green context; `of` is one more than its card's ordinal, `context` what it is as a context.
    Green,
    /// A context, by its handle; `of` counts those that are attached to it beside its maker.
    Context,
    /// A page of a card's memory, by its number.
    Page,
    /// An executable graph on the card of its number; `of` is what its nodes take.
    Graph(u8),
}

/// Something that the driver gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resource {
    /// Charged, or of a pool that is.
    pub(super) bytes: u64,
    /// By its position.
    pub(super) card: usize,
    /// The context with which it ends; 0: none.
    pub(super) context: usize,
    /// As its kind has it. Of memory: one more than the pool it is from, [`PAGED`] or [`MANAGED`].
    pub(super) of: u64,
}

/// `of` managed memory.
pub(super) const MANAGED: u64 = u64::MAX;
/// `of` memory that is charged by the pages that it lies in.
pub(super) const PAGED: u64 = u64::MAX - 1;

/// There is no place for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The table.
pub(super) struct Resources {
    shards: [Lock<Shard>; SHARDS],
}

struct Shard {
    /// `PLACES` entries; null: none were needed yet.
    entries: *mut Entry,
    used: usize,
}

/// All zero: free.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Entry {
    key: u64,
    bytes: u64,
    context: usize,
    of: u64,
    kind: u16,
    card: u8,
}

const SHARDS: usize = 64;
const PLACES: usize = 1 << 14;
/// The most entries of a shard; some must stay free for a search to end, and more for it to end soon.
const MOST: usize = PLACES / 8 * 7;

/// Addresses differ in their middle bits; a product brings all of them to the top.
fn hash(kind: u16, key: u64) -> u64 {
    (key ^ u64::from(kind).rotate_right(16)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44
}

/// Where in its shard to look first.
fn start(hash: u64) -> usize {
    (hash >> 6) as usize % PLACES
}

// SAFETY: a shard owns its entries.
unsafe impl Send for Shard {}

// === impl Kind ===

impl Kind {
    fn number(self) -> u16 {
        match self {
            Self::Memory => 1,
            Self::Array => 2,
            Self::MipmappedArray => 3,
            Self::Handle => 4,
            Self::Mapping => 5,
            Self::Physical => 6,
            Self::Import => 7,
            Self::Green => 8,
            Self::Context => 9,
            Self::Page => 10,
            Self::Graph(card) => 0x100 | u16::from(card),
        }
    }
}

// === impl Resource ===

impl Resource {
    /// That ends with a context.
    pub(super) fn in_context(bytes: u64, card: usize, context: CUcontext) -> Self {
        Self { bytes, card, context: context.addr(), of: 0 }
    }
}

// === impl Resources ===

impl Resources {
    pub(super) const fn new() -> Self {
        Self { shards: [const { Lock::new(Shard { entries: ptr::null_mut(), used: 0 }) }; SHARDS] }
    }

    /// Holds a resource. If the driver gave one with this key before, that one is gone, and is the answer.
    pub(super) fn put(&self, kind: Kind, key: u64, resource: Resource) -> Result<Option<Resource>, Full> {
        let (mut shard, start) = self.find(kind, key);
        shard.put(start, Entry::new(kind, key, resource))
    }

    /// Holds it no longer.
    pub(super) fn take(&self, kind: Kind, key: u64) -> Option<Resource> {
        let (mut shard, start) = self.find(kind, key);
        let at = shard.position(start, kind.number(), key)?;
        Some(shard.remove(at))
    }

    /// What is held with this key.
    pub(super) fn get(&self, kind: Kind, key: u64) -> Option<Resource> {
        let (shard, start) = self.find(kind, key);
        let at = shard.position(start, kind.number(), key)?;
        shard.entries().get(at).map(Entry::resource)
    }

    /// Takes all of a kind that are meant, with their keys; `each` must not come back to the table.
    pub(super) fn take_all(
        &self,
        kinds: &[Kind],
        matches: impl Fn(&Resource) -> bool,
        mut each: impl FnMut(u64, Resource),
    ) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut at = 0;
            // What is removed pulls later entries forward: look again at the same place.
            while shard.used > 0 && at < PLACES {
                let entry = shard.entries().get(at).copied().unwrap_or_default();
                let is_of_kind = kinds.iter().any(|kind| kind.number() == entry.kind);
                if is_of_kind && matches(&entry.resource()) {
                    each(entry.key, shard.remove(at));
                } else {
                    at += 1;
                }
            }
        }
    }

    /// The first of a kind that is looked for, by its key.
    pub(super) fn search(&self, kind: Kind, matches: impl Fn(u64, &Resource) -> bool) -> Option<Resource> {
        let is_it = |entry: &&Entry| entry.kind == kind.number() && matches(entry.key, &entry.resource());
        self.shards.iter().find_map(|shard| shard.lock().entries().iter().find(is_it).map(Entry::resource))
    }

    /// In a child that fork made: nothing of it is held, and a thread that had a lock is not here.
    pub(super) fn forget(&self) {
        for shard in &self.shards {
            *shard.reset() = Shard { entries: ptr::null_mut(), used: 0 };
        }
    }

    /// The shard of a key, and the place from which to look for it.
    #[inline]
    fn find(&self, kind: Kind, key: u64) -> (Held<'_, Shard>, usize) {
        let hash = hash(kind.number(), key);
        (self.shards[hash as usize % SHARDS].lock(), start(hash))
    }
}

// === impl Shard ===

impl Shard {
    fn entries(&self) -> &[Entry] {
        if self.entries.is_null() {
            return &[];
        }
        // SAFETY: so many entries were mapped, as zeros, which are free ones, and the shard owns them.
        unsafe { slice::from_raw_parts(self.entries, PLACES) }
    }

    fn entries_mut(&mut self) -> &mut [Entry] {
        if self.entries.is_null() {
            return &mut [];
        }
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.entries, PLACES) }
    }

    fn position(&self, start: usize, kind: u16, key: u64) -> Option<usize> {
        let entries = self.entries();
        let places = (start..PLACES).chain(0..start);
        for at in places {
            let entry = entries.get(at)?;
            if entry.is_free() {
                return None;
            }
            if entry.key == key && entry.kind == kind {
                return Some(at);
            }
        }
        None
    }

    fn put(&mut self, start: usize, new: Entry) -> Result<Option<Resource>, Full> {
        if self.entries.is_null() {
            self.entries = sys::memory(PLACES * size_of::<Entry>()).ok_or(Full)?.cast();
        }
        if let Some(at) = self.position(start, new.kind, new.key) {
            let known = self.entries_mut().get_mut(at).ok_or(Full)?;
            return Ok(Some(core::mem::replace(known, new).resource()));
        }
        if self.used >= MOST {
            return Err(Full);
        }
        let mut places = (start..PLACES).chain(0..start);
        let entries = self.entries_mut();
        let free = places.find(|at| entries.get(*at).is_some_and(Entry::is_free)).ok_or(Full)?;
        *entries.get_mut(free).ok_or(Full)? = new;
        self.used += 1;
        Ok(None)
    }

    /// Takes an entry out, and moves those after it up that were pushed away by it, so that searches still find them.
    fn remove(&mut self, at: usize) -> Resource {
        let entries = self.entries_mut();
        let removed = entries.get(at).map(Entry::resource).unwrap_or_default();
        let mut hole = at;
        let mut next = at;
        loop {
            next = (next + 1) % PLACES;
            let entry = entries.get(next).copied().unwrap_or_default();
            if entry.is_free() || next == at {
                break;
            }
            // How far it is from where it belongs, and how far the hole would be.
            let wanted = start(hash(entry.kind, entry.key));
            let distance = |place: usize| place.wrapping_sub(wanted) % PLACES;
            if distance(hole) < distance(next) {
                if let Some(place) = entries.get_mut(hole) {
                    *place = entry;
                }
                hole = next;
            }
        }
        if let Some(place) = entries.get_mut(hole) {
            *place = Entry::default();
        }
        self.used = self.used.saturating_sub(1);
        removed
    }
}

// === impl Entry ===

impl Entry {
    fn new(kind: Kind, key: u64, Resource { bytes, card, context, of }: Resource) -> Self {
        Self { key, bytes, context, of, kind: kind.number(), card: card as u8 }
    }

    fn is_free(&self) -> bool {
        self.kind == 0
    }

    fn resource(&self) -> Resource {
        Resource { bytes: self.bytes, card: self.card.into(), context: self.context, of: self.of }
    }
}

#[cfg(test)]
mod tests;
