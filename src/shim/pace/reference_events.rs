//! When events of a card were reached, by their distance from reference events.

use core::mem;
use core::ptr;

use super::clock_offset::ClockOffset;
use crate::cuda::{CUevent, SUCCESS};
use crate::driver::cuda::cuEventElapsedTime;

/// Contexts of a process on one card that tell time by the card's clock. More of them tell it by when they were looked at,
/// which is some milliseconds coarser.
const CONTEXTS: usize = 4;

/// What a card's clock is read from.
pub(super) struct ReferenceEvents([ReferenceEvent; CONTEXTS]);

/// An event of a context that was reached, from which on the card's clock is read.
struct ReferenceEvent {
    context: usize,
    event: CUevent,
    /// What the card's clock showed; it begins at 0 with the first reference event.
    card_ns: i64,
    offset: ClockOffset,
}

/// The longest use of a reference event, ns: the driver answers times as floats of 24 bits.
const MAX_SPAN_NS: i64 = 5_000_000_000;

// SAFETY: an event is a handle, which any thread may use.
unsafe impl Send for ReferenceEvent {}

// === impl ReferenceEvent ===

impl ReferenceEvent {
    const fn new() -> Self {
        Self { context: 0, event: ptr::null_mut(), card_ns: 0, offset: ClockOffset::new() }
    }

    fn reached_at(&mut self, event: &mut CUevent, not_before: u64, not_after: u64) -> u64 {
        let mut milliseconds = 0_f32;
        // SAFETY: two events of one context that were reached; a number is written to a number.
        if unsafe { cuEventElapsedTime(&raw mut milliseconds, self.event, *event) } != SUCCESS {
            return u64::midpoint(not_before, not_after);
        }
        // A number that isn't one becomes zero.
        let since_ns = (f64::from(milliseconds) * 1e6) as i64;
        let card_ns = self.card_ns.saturating_add(since_ns);
        if since_ns >= MAX_SPAN_NS {
            mem::swap(&mut self.event, event);
            self.card_ns = card_ns;
        }
        self.offset.reached(card_ns, not_before, not_after)
    }
}

// === impl ReferenceEvents ===

impl ReferenceEvents {
    pub(super) const fn new() -> Self {
        Self([const { ReferenceEvent::new() }; CONTEXTS])
    }

    /// When an event was reached that has been: not before the one moment, not after the other. It may become a reference event;
    /// the caller then has another event for it, or none.
    pub(super) fn reached_at(&mut self, context: usize, event: &mut CUevent, not_before: u64, not_after: u64) -> u64 {
        let not_after = not_after.max(not_before);
        if let Some(reference) = self.0.iter_mut().find(|reference| reference.context == context) {
            return reference.reached_at(event, not_before, not_after);
        }
        let Some(free) = self.0.iter_mut().find(|reference| reference.context == 0) else {
            return u64::midpoint(not_before, not_after);
        };
        *free = ReferenceEvent { context, event: mem::replace(event, ptr::null_mut()), ..ReferenceEvent::new() };
        // Nothing is known but this, and the first of a context's work mostly finds the card waiting for it.
        free.offset.reached(0, not_before, not_after);
        not_before
    }

    /// Forgets a context that has ended, and its events with it.
    pub(super) fn forget(&mut self, context: usize) {
        self.0
            .iter_mut()
            .filter(|reference| reference.context == context)
            .for_each(|reference| *reference = ReferenceEvent::new());
    }
}
