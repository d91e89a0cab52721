//! Compute: launches are admitted by estimate and charged by measurement (`divvy_region::bucket`).
//!
//! ```text
//!  launch ──▶ gate of the card ──▶ driver ──▶ marker behind it    at times, an event in the program's stream
//!               │ shut: sleep                   │
//!               └─◀─── bucket ◀─── charge ◀─────┴── a poll, by a thread that launches, waits, or runs for it (monitor):
//!                         ▲                         which markers were reached, and which time of the card was that?
//!               share and time ◀──── clock page
//! ```
//!
//! A container that has its cards whole is charged nothing, and its launches only count down to the next check of the
//! limits. Otherwise a launch costs a reading of the clock, the gate and a line in its stream's track.
//!
//! Time is charged as it passes: a stream that has work now was busy since the last poll. The first work of a kind is a
//! probe: nothing else is admitted until it is measured, as it may take a second. Streams are kept in tables of a fixed
//! size; [`tracks`] says what happens when they are full.
//!
//! The driver's waiting functions that are hooked are those after which a program mostly waits for nothing more: for a stream,
//! a context, an event. Copies that wait, and programs that ask again and again, are noticed some milliseconds later by the
//! thread. `cuStreamWaitEvent` is left alone: a stream that waits before its first work is not charged for it, as a marker
//! before that work tells when it began; one that waits between works is, as in any gap. Captures are left alone too: polls
//! are made in relaxed mode, which disturbs none, and each launch asks whether its stream is capturing.

use core::ffi::c_uint;
use core::sync::atomic::{AtomicU32, Ordering};

use card::Card;
use divvy_region::clock::DriverMemory;
use divvy_region::{Account, Estimate};
use stream::Stream;
use work::Work;

use crate::cuda::{CUresult, CUstream, ERROR_NOT_PERMITTED, SUCCESS};
use crate::driver::current_context;
use crate::process::{self, Process};
use crate::time;

mod card;
mod charged_time;
mod clock;
mod clock_offset;
mod draw;
mod duty;
pub(crate) mod end;
mod graph_estimates;
pub(crate) mod launch;
mod monitor;
pub(crate) mod moves;
mod reference_events;
mod stream;
mod track;
mod tracks;
mod work;

/// Launches between two checks of the limits: enough to make the check cheap, and few enough for long kernels.
const LAUNCHES_PER_CHECK: u32 = 64;

/// Launches left before the next check; 0 where cards are shared.
static UNCHECKED_LAUNCHES: AtomicU32 = AtomicU32::new(0);

/// A launch that was admitted and accounted for.
#[derive(Clone, Copy)]
struct Admitted {
    process: &'static Process,
    position: usize,
    account: Account<'static>,
    stream: Stream,
    /// Whether nothing was in flight in the stream, or nothing behind its last marker.
    is_first: bool,
    work: Work,
    estimate: Estimate,
    began_ns: u64,
}

/// Whether a launch needs no account: one predicted branch, where all cards are the container's whole.
#[inline]
fn is_unrestricted() -> bool {
    let left = UNCHECKED_LAUNCHES.load(Ordering::Relaxed);
    if left == 0 {
        return false;
    }
    UNCHECKED_LAUNCHES.store(left - 1, Ordering::Relaxed);
    true
}

/// Lets work into a stream, or makes it wait. `None` if it needs no account: a card that is whole, a capture, no context.
#[inline(never)]
fn admit(stream: CUstream, is_per_thread: bool, work: Work) -> Result<Option<Admitted>, CUresult> {
    let process = process::this()?;
    let now = time::now();
    process.refresh(now);
    if process.has_whole_cards() {
        UNCHECKED_LAUNCHES.store(LAUNCHES_PER_CHECK, Ordering::Relaxed);
        if let Some(bucket) = process.current_card().ok().and_then(|position| process.region().card(position)) {
            bucket.launches.add((LAUNCHES_PER_CHECK + 1).into());
        }
        return Ok(None);
    }
    let context = current_context();
    if context.is_null() {
        return Ok(None);
    }
    let stream = Stream::in_context(context, stream, is_per_thread);
    // What can't be asked the driver refuses too.
    if stream.is_capturing() != Some(false) {
        return Ok(None);
    }
    let known = tracks::find(&stream);
    let position = match known {
        Some(entry) => entry.card(),
        None => process.current_card()?,
    };
    if process.share(position).is_whole() {
        return Ok(None);
    }
    let account = process.account(position).ok_or(ERROR_NOT_PERMITTED)?;
    let is_first = false;
    let estimate = Estimate::UNKNOWN;
    let mut admitted = Admitted { process, position, account, stream, is_first, work, estimate, began_ns: now };
    admitted.wait_for_gate()?;
    admitted.is_first = known.is_none_or(tracks::StreamEntry::is_marked);
    account.launched(admitted.estimate.ns());
    Ok(Some(admitted))
}

/// What the driver takes of a card for contexts and graphs, as the daemon says on the card's clock page.
pub(crate) fn driver_memory(process: &Process, position: usize) -> DriverMemory {
    Card::at(position).map(|card| card.driver_memory(process, position)).unwrap_or_default()
}

/// In a child that fork made: nothing was launched, and nobody looks.
pub(crate) fn forget() {
    monitor::forget();
    tracks::forget_all();
    Card::forget_all();
}

// === impl Admitted ===

impl Admitted {
    #[inline]
    fn wait_for_gate(&mut self) -> Result<(), CUresult> {
        let Self { process, position, account, work, .. } = *self;
        let (Some(card), Some(bucket)) = (Card::at(position), process.region().card(position)) else {
            return Err(ERROR_NOT_PERMITTED);
        };
        match work {
            Work::Kernel => bucket.launches.add(1),
            Work::Graph(_) => bucket.graph_launches.add(1),
            Work::Move(_) => {}
        }
        let share = card.allotment(process, position, self.began_ns).share;
        bucket.refill(self.began_ns, share);
        self.estimate = card.estimate(work);
        if card.is_open((process.region(), position), account, self.estimate, share, self.began_ns) {
            return Ok(());
        }
        if let Some(mut locked) = tracks::lock(&self.stream) {
            locked.update(|track, stream| track.mark_rest(stream, self.began_ns));
        }
        self.estimate = card.wait(process, position, account, (&self.stream, work));
        self.began_ns = time::now();
        Ok(())
    }

    /// Notes that the launch goes to the driver now.
    #[inline]
    fn begin(&self) {
        if self.is_first {
            self.begin_first();
        }
    }

    /// Notes the same of a launch on several cards, held back by other gates since its own was open: that time isn't charged.
    #[cold]
    fn begin_late(&mut self) {
        self.began_ns = time::now();
        self.is_first = tracks::find(&self.stream).is_none_or(tracks::StreamEntry::is_marked);
        self.begin();
    }

    /// Work is about to be launched behind which a marker is the last, or nothing.
    #[cold]
    fn begin_first(&self) {
        let Self { process, stream, began_ns, .. } = *self;
        // A handle, of a context or a stream, may be another one's by now.
        let Ok(position) = process.current_card() else { return };
        let entry = tracks::find(&stream).filter(|entry| entry.card() == position);
        if entry.is_none() && tracks::insert(&stream, position).is_none() {
            return;
        }
        if let Some(card) = Card::at(position)
            && entry.is_none_or(tracks::StreamEntry::is_idle)
        {
            card.begin(process, position, began_ns);
        }
        if let Some(mut locked) = tracks::lock(&stream) {
            locked.update(|track, stream| track.begin(stream, began_ns));
        }
    }

    /// Ends a launch that the driver took or refused.
    #[inline]
    fn done(&self, result: CUresult) -> CUresult {
        let Self { process, position, account, stream, work, estimate, began_ns, .. } = *self;
        let Some(card) = Card::at(position) else { return result };
        if result != SUCCESS {
            account.completed(estimate.ns(), 0);
            card.forget_probe(estimate);
            return result;
        }
        if let Some(mut locked) = tracks::lock(&stream) {
            locked.update(|track, stream| track.launched(stream, work, estimate, began_ns));
        } else if let Some(bucket) = process.region().card(position) {
            // No room for one stream more: what can't be measured is charged for as it is estimated.
            account.completed(estimate.ns(), estimate.ns());
            card.forget_probe(estimate);
            if !card.allotment(process, position, began_ns).share.is_whole() {
                bucket.debit(estimate.ns());
            }
        }
        monitor::work_launched(process, began_ns);
        result
    }
}

/// The most launches of one call: more than a container has cards.
const MAX_DEVICES: c_uint = 64;
