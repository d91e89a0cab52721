//! Which streams have work.
//!
//! A stream has one of eight places, by its handle. If others that are busy have them all, what is launched in it is paid for
//! by estimate, at once, and not measured: the share is as right as the estimates of the card's other work are.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use super::stream::Stream;
use super::track::Track;
use crate::lock::{Held, Lock};

const PLACES: usize = 512;
const CHOICES: usize = 8;

/// All zeros at first: they take no room in the library, and none in memory until they are used.
static ALL: [Place; PLACES] = [const { Place::new() }; PLACES];
/// Places below this one may be taken; it saves looking at the others.
static HIGH: AtomicUsize = AtomicUsize::new(0);

/// Where a stream is known.
pub(super) struct Place {
    /// Whose it is; changed only by who holds the track. 0: nobody's.
    context: AtomicUsize,
    handle: AtomicUsize,
    thread: AtomicUsize,
    card: AtomicU8,
    /// Whether something of it is in flight, as far as one can tell without holding the track.
    is_busy: AtomicBool,
    track: Lock<Track>,
}

/// A stream's track while nobody else uses it.
pub(super) struct Tracked<'a> {
    place: &'a Place,
    pub(super) stream: Stream,
    track: Held<'a, Track>,
}

// === impl Place ===

impl Place {
    const fn new() -> Self {
        Self {
            context: AtomicUsize::new(0),
            handle: AtomicUsize::new(0),
            thread: AtomicUsize::new(0),
            card: AtomicU8::new(0),
            is_busy: AtomicBool::new(false),
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

    fn take(&self, stream: Stream, card: usize) {
        self.handle.store(stream.handle, Ordering::Relaxed);
        self.thread.store(stream.thread, Ordering::Relaxed);
        self.card.store(card as u8, Ordering::Relaxed);
        self.context.store(stream.context, Ordering::Relaxed);
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.is_busy.load(Ordering::Relaxed)
    }

    /// Of the card, in the limits file.
    pub(super) fn card(&self) -> usize {
        self.card.load(Ordering::Relaxed).into()
    }

    fn hold<'a>(&'a self, track: Held<'a, Track>) -> Tracked<'a> {
        Tracked { place: self, stream: self.stream(), track }
    }

    /// The track, if it is somebody's and nobody uses it now.
    pub(super) fn try_hold(&self) -> Option<Tracked<'_>> {
        self.track.try_lock().map(|track| self.hold(track)).filter(|held| held.stream.context != 0)
    }
}

/// Where a stream would be.
fn choices(stream: &Stream) -> impl Iterator<Item = (usize, &'static Place)> + use<> {
    let mixed = (stream.handle >> 3).wrapping_mul(31) ^ (stream.context >> 4) ^ (stream.thread >> 6);
    let first = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % (PLACES / CHOICES) * CHOICES;
    ALL.iter().enumerate().skip(first).take(CHOICES)
}

/// The place of a stream, if it has one.
#[inline]
pub(super) fn known(stream: &Stream) -> Option<&'static Place> {
    choices(stream).map(|(_, place)| place).find(|place| place.stream() == *stream)
}

/// The track of a stream, if it has one.
#[inline]
pub(super) fn held(stream: &Stream) -> Option<Tracked<'static>> {
    let place = known(stream)?;
    let track = place.track.lock();
    Some(place.hold(track)).filter(|held| held.stream == *stream)
}

/// A place for a stream that has none: one that is free, or one of a stream that is idle.
#[cold]
pub(super) fn make(stream: &Stream, card: usize) -> Option<&'static Place> {
    for is_taken_over in [false, true] {
        for (index, place) in choices(stream) {
            let Some(mut track) = place.track.try_lock() else { continue };
            let owner = place.stream();
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
            place.take(*stream, card);
            HIGH.fetch_max(index + 1, Ordering::Relaxed);
            return Some(place);
        }
    }
    None
}

/// Whether no stream was ever tracked.
#[inline]
pub(super) fn are_none() -> bool {
    HIGH.load(Ordering::Relaxed) == 0
}

/// All places that may be taken.
pub(super) fn all() -> impl Iterator<Item = &'static Place> {
    ALL.iter().take(HIGH.load(Ordering::Relaxed))
}

/// The tracks of a context, one after the other.
pub(super) fn of_context(context: usize) -> impl Iterator<Item = Tracked<'static>> {
    all().filter(move |place| place.context.load(Ordering::Relaxed) == context).filter_map(move |place| {
        let track = place.track.lock();
        Some(place.hold(track)).filter(|held| held.stream.context == context)
    })
}

/// In a child that fork made: there are no streams.
pub(super) fn forget_all() {
    for place in all() {
        *place.track.reset() = Track::new();
        place.take(Stream { context: 0, handle: 0, thread: 0 }, 0);
        place.is_busy.store(false, Ordering::Relaxed);
    }
}

// === impl Tracked ===

impl Tracked<'_> {
    #[inline]
    pub(super) fn act<T>(&mut self, act: impl FnOnce(&mut Track, &Stream) -> T) -> T {
        let acted = act(&mut self.track, &self.stream);
        self.place.is_busy.store(!self.track.is_idle(), Ordering::Relaxed);
        acted
    }

    /// The context has ended, and took its events along.
    pub(super) fn end(mut self) {
        self.act(|track, _| track.lose_events(false));
        self.place.take(Stream { context: 0, handle: 0, thread: 0 }, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_find_their_places_again_and_idle_ones_make_room() {
        let stream = |number: usize| Stream { context: 0x5500_0000_1000, handle: 0x7f00_0000 + 64 * number, thread: 0 };
        for number in 0..2000 {
            let stream = stream(number);
            assert!(known(&stream).is_none());
            let place = make(&stream, number % 3).expect("all others are idle");
            assert!(core::ptr::eq(place, known(&stream).expect("just made")));
            assert_eq!(place.card(), number % 3);
            assert!(held(&stream).is_some_and(|held| held.stream == stream));
        }
        let of_it = of_context(0x5500_0000_1000).count();
        assert!((PLACES / 2..=PLACES).contains(&of_it), "{of_it}");
        // Those in use make no room.
        let last = stream(1999);
        let mut taken = Vec::new();
        while let Some(place) = (2000..90_000).map(stream).filter(|next| known(next).is_none()).find_map(|next| {
            let same = choices(&next).next().map(|(at, _)| at) == choices(&last).next().map(|(at, _)| at);
            same.then(|| make(&next, 0)).flatten()
        }) {
            taken.push(place.track.lock());
            assert!(taken.len() <= CHOICES);
        }
        assert_eq!(taken.len(), CHOICES);
        drop(taken);
        of_context(0x5500_0000_1000).for_each(Tracked::end);
        assert_eq!(of_context(0x5500_0000_1000).count(), 0);
    }
}
