//! The table of streams.
//!
//! A hash table of fixed size with eight ways: a stream has one of eight entries, by its handle. If busy streams have them
//! all, what is launched in it is charged by estimate, at once, and not measured: the share is then as exact as the
//! estimates of the card's other work.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use super::card::Card;
use super::stream::Stream;
use super::track::Track;
use crate::lock::{Held, Lock};

const ENTRIES: usize = 512;
const WAYS: usize = 8;

/// Streams that work was launched in. All zeros at first, which takes no space in the file, and no memory until it is used.
static TABLE: [StreamEntry; ENTRIES] = [const { StreamEntry::new() }; ENTRIES];
/// Entries below this one may be in use; no search goes beyond it.
static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);

/// The entry of a stream.
pub(super) struct StreamEntry {
    /// The stream that has the entry: context, handle, thread; changed by the holder of the track alone. 0: none.
    context: AtomicUsize,
    handle: AtomicUsize,
    thread: AtomicUsize,
    card: AtomicU8,
    /// Whether work of the stream is in flight, as far as can be told without the lock of the track.
    is_busy: AtomicBool,
    /// Whether nothing was launched behind its last marker, in the same way.
    is_marked: AtomicBool,
    track: Lock<Track>,
}

/// A stream's track while nobody else uses it.
pub(super) struct LockedTrack<'a> {
    entry: &'a StreamEntry,
    pub(super) stream: Stream,
    track: Held<'a, Track>,
}

// === impl StreamEntry ===

impl StreamEntry {
    const fn new() -> Self {
        Self {
            context: AtomicUsize::new(0),
            handle: AtomicUsize::new(0),
            thread: AtomicUsize::new(0),
            card: AtomicU8::new(0),
            is_busy: AtomicBool::new(false),
            is_marked: AtomicBool::new(false),
            track: Lock::new(Track::new()),
        }
    }

    #[inline]
    fn stream(&self) -> Stream {
        Stream {
            context: self.context.load(Ordering::Relaxed),
            handle: self.handle.load(Ordering::Relaxed),
            thread: self.thread.load(Ordering::Relaxed),
        }
    }

    fn assign(&self, stream: Stream, card: usize) {
        self.handle.store(stream.handle, Ordering::Relaxed);
        self.thread.store(stream.thread, Ordering::Relaxed);
        self.card.store(card as u8, Ordering::Relaxed);
        self.context.store(stream.context, Ordering::Relaxed);
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.is_busy.load(Ordering::Relaxed)
    }

    /// Whether nothing was launched behind the last marker: only then may one be put before the next launch.
    pub(super) fn is_marked(&self) -> bool {
        self.is_marked.load(Ordering::Relaxed)
    }

    /// The card's position in the limits file.
    pub(super) fn card(&self) -> usize {
        self.card.load(Ordering::Relaxed).into()
    }

    fn locked<'a>(&'a self, track: Held<'a, Track>) -> LockedTrack<'a> {
        LockedTrack { entry: self, stream: self.stream(), track }
    }

    /// The track, if it is somebody's and nobody uses it now.
    pub(super) fn try_lock(&self) -> Option<LockedTrack<'_>> {
        self.track.try_lock().map(|track| self.locked(track)).filter(|lock| lock.stream.context != 0)
    }
}

/// The entries that a stream may have.
fn ways(stream: &Stream) -> impl Iterator<Item = (usize, &'static StreamEntry)> + use<> {
    let mixed = (stream.handle >> 3).wrapping_mul(31) ^ (stream.context >> 4) ^ (stream.thread >> 6);
    let first = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % (ENTRIES / WAYS) * WAYS;
    TABLE.iter().enumerate().skip(first).take(WAYS)
}

/// The entry of a stream, if it has one.
#[inline]
pub(super) fn find(stream: &Stream) -> Option<&'static StreamEntry> {
    ways(stream).map(|(_, entry)| entry).find(|entry| entry.stream() == *stream)
}

/// The track of a stream, if it has one.
#[inline]
pub(super) fn lock(stream: &Stream) -> Option<LockedTrack<'static>> {
    let entry = find(stream)?;
    let track = entry.track.lock();
    Some(entry.locked(track)).filter(|lock| lock.stream == *stream)
}

/// Inserts a stream, in an entry that is free or that of an idle stream.
#[cold]
pub(super) fn insert(stream: &Stream, card: usize) -> Option<&'static StreamEntry> {
    for is_taken_over in [false, true] {
        for (index, entry) in ways(stream) {
            let Some(mut track) = entry.track.try_lock() else { continue };
            let owner = entry.stream();
            if owner != *stream && owner.context != 0 && !(is_taken_over && track.is_idle()) {
                continue;
            }
            if owner.context != stream.context {
                track.lose_events(owner.context != 0);
            }
            if owner != *stream {
                let mut fresh = Track::new();
                fresh.keep_events(&track);
                *track = fresh;
            }
            track.card = card;
            entry.assign(*stream, card);
            HIGH_WATER.fetch_max(index + 1, Ordering::Relaxed);
            return Some(entry);
        }
    }
    None
}

/// Whether no stream was ever tracked.
#[inline]
pub(super) fn is_empty() -> bool {
    HIGH_WATER.load(Ordering::Relaxed) == 0
}

/// All places that may be taken.
pub(super) fn all() -> impl Iterator<Item = &'static StreamEntry> {
    TABLE.iter().take(HIGH_WATER.load(Ordering::Relaxed))
}

/// The tracks of a context, one after the other.
pub(super) fn of_context(context: usize) -> impl Iterator<Item = LockedTrack<'static>> {
    all().filter(move |entry| entry.context.load(Ordering::Relaxed) == context).filter_map(move |entry| {
        let track = entry.track.lock();
        Some(entry.locked(track)).filter(|lock| lock.stream.context == context)
    })
}

/// In a child that fork made: there are no streams.
pub(super) fn forget_all() {
    for entry in all() {
        *entry.track.reset() = Track::new();
        entry.assign(Stream { context: 0, handle: 0, thread: 0 }, 0);
        entry.is_busy.store(false, Ordering::Relaxed);
    }
}

// === impl LockedTrack ===

impl LockedTrack<'_> {
    #[inline]
    pub(super) fn update<T>(&mut self, update: impl FnOnce(&mut Track, &Stream) -> T) -> T {
        let acted = update(&mut self.track, &self.stream);
        let is_busy = !self.track.is_idle();
        self.entry.is_marked.store(!self.track.has_unmarked(), Ordering::Relaxed);
        // Whoever writes them has the lock.
        if self.entry.is_busy.load(Ordering::Relaxed) != is_busy {
            self.entry.is_busy.store(is_busy, Ordering::Relaxed);
            if let Some(card) = Card::at(self.track.card) {
                card.stream_changed(is_busy);
            }
        }
        acted
    }

    /// Forgets a stream whose context has ended, and its events with it.
    pub(super) fn end(mut self) {
        self.update(|track, _| track.lose_events(false));
        self.entry.assign(Stream { context: 0, handle: 0, thread: 0 }, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_keep_tracks_and_idle_ones_are_evicted() {
        let stream = |number: usize| Stream { context: 0x5500_0000_1000, handle: 0x7f00_0000 + 64 * number, thread: 0 };
        for number in 0..2000 {
            let stream = stream(number);
            assert!(find(&stream).is_none());
            let entry = insert(&stream, number % 3).expect("all others are idle");
            assert!(core::ptr::eq(entry, find(&stream).expect("just made")));
            assert_eq!(entry.card(), number % 3);
            assert!(lock(&stream).is_some_and(|lock| lock.stream == stream));
        }
        let of_it = of_context(0x5500_0000_1000).count();
        assert!((ENTRIES / 2..=ENTRIES).contains(&of_it), "{of_it}");
        // Streams in use are not replaced.
        let last = stream(1999);
        let mut taken = Vec::new();
        while let Some(entry) = (2000..90_000).map(stream).filter(|next| find(next).is_none()).find_map(|next| {
            let same = ways(&next).next().map(|(at, _)| at) == ways(&last).next().map(|(at, _)| at);
            same.then(|| insert(&next, 0)).flatten()
        }) {
            taken.push(entry.track.lock());
            assert!(taken.len() <= WAYS);
        }
        assert_eq!(taken.len(), WAYS);
        drop(taken);
        of_context(0x5500_0000_1000).for_each(LockedTrack::end);
        assert_eq!(of_context(0x5500_0000_1000).count(), 0);
    }
}
