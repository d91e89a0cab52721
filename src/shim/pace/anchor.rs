//! When events of a card were reached.

use core::mem;
use core::ptr;

use super::dial::Dial;
use crate::cuda::{CUevent, SUCCESS};
use crate::driver::cuda::cuEventElapsedTime;

/// Contexts of a process on one card that tell time by the card's clock. More of them tell it by when they were looked at,
/// which is some milliseconds coarser.
const CONTEXTS: usize = 4;

/// What a card's clock is read from.
pub(super) struct Anchors([Anchor; CONTEXTS]);

/// An event of a context that was reached, from which on the card's clock is read.
struct Anchor {
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
    const fn new() -> Self {
        Self { context: 0, event: ptr::null_mut(), card_ns: 0, dial: Dial::new() }
    }

    fn date(&mut self, event: &mut CUevent, not_before: u64, not_after: u64) -> u64 {
        let mut milliseconds = 0_f32;
        // SAFETY: two events of one context that were reached; a number is written to a number.
        if unsafe { cuEventElapsedTime(&raw mut milliseconds, self.event, *event) } != SUCCESS {
            return u64::midpoint(not_before, not_after);
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
}

// === impl Anchors ===

impl Anchors {
    pub(super) const fn new() -> Self {
        Self([const { Anchor::new() }; CONTEXTS])
    }

    /// When an event was reached that has been: not before the one moment, not after the other. It may become an anchor;
    /// the caller then has another event for it, or none.
    pub(super) fn date(&mut self, context: usize, event: &mut CUevent, not_before: u64, not_after: u64) -> u64 {
        let not_after = not_after.max(not_before);
        if let Some(anchor) = self.0.iter_mut().find(|anchor| anchor.context == context) {
            return anchor.date(event, not_before, not_after);
        }
        let Some(free) = self.0.iter_mut().find(|anchor| anchor.context == 0) else {
            return u64::midpoint(not_before, not_after);
        };
        *free = Anchor { context, event: mem::replace(event, ptr::null_mut()), ..Anchor::new() };
        // Nothing is known but this, and the first of a context's work mostly finds the card waiting for it.
        free.dial.reached(0, not_before, not_after);
        not_before
    }

    /// The context has ended, and took its events along.
    pub(super) fn forget(&mut self, context: usize) {
        self.0.iter_mut().filter(|anchor| anchor.context == context).for_each(|anchor| *anchor = Anchor::new());
    }
}
