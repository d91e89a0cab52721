//! When events of a card were reached.

use core::mem;
use core::ptr;

use super::dial::Dial;
use crate::cuda::{CUevent, SUCCESS};
use crate::table::cuda::cuEventElapsedTime;

/// An event that was reached, from which on the card's clock is read. Contexts other than its own tell time by when they
/// were looked at, which is a millisecond coarser.
pub(super) struct Anchor {
    context: usize,
    event: CUevent,
    /// What the card's clock showed; it began with the first anchor.
    card_ns: i64,
    dial: Dial,
}

/// An anchor isn't kept for longer, ns: the driver tells times as numbers of 24 bits.
const FAR_NS: i64 = 5_000_000_000;

// SAFETY: an event is a handle, which any thread may use.
unsafe impl Send for Anchor {}

// === impl Anchor ===

impl Anchor {
    pub(super) const fn new() -> Self {
        Self { context: 0, event: ptr::null_mut(), card_ns: 0, dial: Dial::new() }
    }

    /// When an event was reached that has been: not before the one moment, not after the other. It may become the anchor;
    /// the caller then has another event for it, or none.
    pub(super) fn date(&mut self, context: usize, event: &mut CUevent, not_before: u64, not_after: u64) -> u64 {
        if self.context == 0 {
            *self = Self { context, event: mem::replace(event, ptr::null_mut()), card_ns: 0, dial: Dial::new() };
            // Nothing is known but this, and the first of a program's work mostly finds the card waiting for it.
            self.dial.reached(0, not_before, not_after);
            return not_before;
        }
        let coarse = u64::midpoint(not_before, not_after.max(not_before));
        if self.context != context {
            return coarse;
        }
        let mut milliseconds = 0_f32;
        // SAFETY: two events of one context that were reached; a number is written to a number.
        if unsafe { cuEventElapsedTime(&raw mut milliseconds, self.event, *event) } != SUCCESS {
            return coarse;
        }
        // A number that isn't one becomes zero.
        let since_ns = (f64::from(milliseconds) * 1e6) as i64;
        let card_ns = self.card_ns.saturating_add(since_ns);
        if since_ns >= FAR_NS {
            mem::swap(&mut self.event, event);
            self.card_ns = card_ns;
        }
        self.dial.reached(card_ns, not_before, not_after)
    }

    /// The context has ended, and took its events along.
    pub(super) fn forget(&mut self, context: usize) {
        if self.context == context {
            *self = Self::new();
        }
    }
}
