//! The markers of a stream: events in the order in which they were recorded.

use core::ptr;

use crate::cuda::{CUevent, EVENT_DEFAULT, SUCCESS};
use crate::driver::cuda::{cuEventCreate, cuEventDestroy_v2, cuEventRecord};
use crate::pace::stream::{Relaxed, Stream};
use crate::pace::work::Batch;

/// Markers of one stream at a time. When all are pending, the newest is recorded again.
const MARKERS: usize = 6;

const NO_EVENT: CUevent = ptr::null_mut();

pub(super) struct Markers {
    ring: [Marker; MARKERS],
    /// The index of the marker to be reached next.
    next: usize,
    /// How many markers were recorded and not reached.
    pending: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Marker {
    pub(super) event: CUevent,
    pub(super) recorded_ns: u64,
    /// Launches between it and the marker before it.
    pub(super) batch: Batch,
    pub(super) kind: MarkerKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkerKind {
    /// Behind launches.
    End,
    /// Before a launch: it tells when the card comes to that.
    Start,
    /// Before a launch that was drawn, and behind the marker of the one before: the gap between them is one like all.
    PairedStart,
}

// SAFETY: an event is a handle, which any thread may use.
unsafe impl Send for Marker {}

// === impl MarkerKind ===

impl MarkerKind {
    pub(super) fn is_start(self) -> bool {
        self != Self::End
    }
}

// === impl Markers ===

impl Markers {
    pub(super) const fn new() -> Self {
        let marker = Marker { event: NO_EVENT, recorded_ns: 0, batch: Batch::new(), kind: MarkerKind::End };
        Self { ring: [marker; MARKERS], next: 0, pending: 0 }
    }

    /// The marker to be reached next.
    pub(super) fn next(&self) -> Option<&Marker> {
        self.ring.get(self.next).filter(|_| self.pending > 0)
    }

    pub(super) fn next_mut(&mut self) -> Option<&mut Marker> {
        self.ring.get_mut(self.next).filter(|_| self.pending > 0)
    }

    /// The marker behind that.
    pub(super) fn second_mut(&mut self) -> Option<&mut Marker> {
        self.ring.get_mut((self.next + 1) % MARKERS).filter(|_| self.pending > 1)
    }

    /// Whether the card hasn't come yet to the launch behind the next marker.
    pub(super) fn is_start_next(&self) -> bool {
        self.next().is_some_and(|next| next.kind.is_start())
    }

    /// How many are behind launches that may not be done.
    pub(super) fn ends(&self) -> usize {
        self.pending - usize::from(self.is_start_next())
    }

    /// Drops the next marker, which was reached or never will be; the launches before it.
    pub(super) fn pop(&mut self) -> Option<Batch> {
        let batch = self.next().map(|marker| marker.batch)?;
        self.next = (self.next + 1) % MARKERS;
        self.pending -= 1;
        Some(batch)
    }

    /// Records a marker behind all that was launched, these launches last; false if it couldn't be.
    pub(super) fn record(&mut self, stream: &Stream, now_ns: u64, batch: Batch, kind: MarkerKind) -> bool {
        let is_full = self.pending >= MARKERS;
        if is_full && kind.is_start() {
            return false;
        }
        let ahead = if is_full { self.pending - 1 } else { self.pending };
        let Some(marker) = self.ring.get_mut((self.next + ahead) % MARKERS) else { return false };
        if marker.event == NO_EVENT {
            let _making = Relaxed::begin();
            // SAFETY: an event is written to an event.
            if unsafe { cuEventCreate(&raw mut marker.event, EVENT_DEFAULT) } != SUCCESS {
                marker.event = NO_EVENT;
                return false;
            }
        }
        // SAFETY: an event of ours and the stream that the caller launches on, both of the current context.
        if unsafe { cuEventRecord(marker.event, stream.handle()) } != SUCCESS {
            return false;
        }
        (marker.recorded_ns, marker.kind) = (now_ns, kind);
        if is_full {
            marker.batch.merge(batch);
        } else {
            marker.batch = batch;
            self.pending += 1;
        }
        true
    }

    /// Forgets the events, which are gone with their context or are to be destroyed.
    pub(super) fn lose_events(&mut self, is_context_alive: bool) {
        for marker in &mut self.ring {
            if marker.event != NO_EVENT && is_context_alive {
                // SAFETY: an event of ours, which nobody uses any more.
                let _destroyed = unsafe { cuEventDestroy_v2(marker.event) };
            }
            marker.event = NO_EVENT;
        }
    }

    /// Takes over the events of a stream of the same context, whose work is done.
    pub(super) fn keep_events(&mut self, other: &Self) {
        for (marker, other) in self.ring.iter_mut().zip(&other.ring) {
            marker.event = other.event;
        }
    }
}
