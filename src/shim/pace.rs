//! Compute: launches are let through by estimate, and paid for by measurement (`divvy_region::bucket`).
//!
//! ```text
//!  launch ──▶ gate of the card ──▶ driver ──▶ mark behind it      at most each 200 µs, an event in the program's stream
//!               │ shut: sleep                   │
//!               └─◀──── bucket ◀──── pay ◀──────┴── a look, by whoever launches, waits or wakes for it (monitor): what
//!                         ▲                         marks were reached, and which time of the card was that?
//!               share and time ◀──── clock page
//! ```
//!
//! A container that has its cards whole pays nothing, and no launch of its does more than count down to the next look at
//! the limits. Otherwise a launch costs the clock, the gate and a line in its stream's track.
//!
//! Time is paid for as it passes: a stream that has work now was busy since it was last looked at. Work whose like was never
//! measured goes alone, as it may take a second. What is known of streams stands in tables of a fixed size; [`tracks`] says
//! what happens when they are full.
//!
//! Of the driver's functions that wait, those are hooked after which a program mostly waits for nothing more: for a stream,
//! a context, an event. Copies that wait, and programs that ask again and again, are seen some milliseconds later by the
//! thread. `cuStreamWaitEvent` is left alone: a stream that waits before its first work is not charged for it, as a mark
//! before that work tells when it began; one that waits between works is, as in any gap. Captures are left alone too: looks
//! are made in relaxed mode, which disturbs none, and each launch asks whether its stream is capturing.

use core::ffi::c_uint;
use core::sync::atomic::{AtomicU32, Ordering};

use card::Card;
use divvy_region::{Account, Estimate};
use stream::Stream;
use work::Work;

use crate::cuda::{CUcontext, CUdevice, CUresult, CUstream, ERROR_NOT_PERMITTED, SUCCESS};
use crate::driver::cuda::{cuCtxGetCurrent, cuCtxGetDevice};
use crate::process::{self, Process};
use crate::time;

mod anchor;
mod card;
mod clock;
mod dial;
pub(crate) mod end;
pub(crate) mod launch;
mod monitor;
mod paid;
mod stream;
mod track;
mod tracks;
mod work;

/// Launches that pass before one looks at the limits again: as many as make the look cheap, and few enough for kernels that
/// take long.
const UNLOOKED: u32 = 64;

/// Launches that may pass without a look; 0 where cards are shared.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// A launch that is let through, and accounted for.
#[derive(Clone, Copy)]
struct Passed {
    process: &'static Process,
    position: usize,
    account: Account<'static>,
    stream: Stream,
    /// Nothing was in flight in it.
    is_idle: bool,
    work: Work,
    estimate: Estimate,
    began_ns: u64,
}

/// Whether a launch needs no account: one predicted branch, where all cards are the container's whole.
#[inline]
fn is_free() -> bool {
    let left = LEFT.load(Ordering::Relaxed);
    if left == 0 {
        return false;
    }
    LEFT.store(left - 1, Ordering::Relaxed);
    true
}

/// Lets work into a stream, or makes it wait. `None` if it needs no account: a card that is whole, a capture, no context.
#[inline(never)]
fn pass(stream: CUstream, is_per_thread: bool, work: Work) -> Result<Option<Passed>, CUresult> {
    let process = process::this()?;
    let now = time::now();
    process.keep_up(now);
    if process.has_whole_cards() {
        LEFT.store(UNLOOKED, Ordering::Relaxed);
        if let Some(books) = current_position(process).and_then(|position| process.region().card(position)) {
            books.launches.add((UNLOOKED + 1).into());
        }
        return Ok(None);
    }
    let mut context: CUcontext = core::ptr::null_mut();
    // SAFETY: a context is written to a context.
    if unsafe { cuCtxGetCurrent(&raw mut context) } != SUCCESS || context.is_null() {
        return Ok(None);
    }
    let stream = Stream::of(context, stream, is_per_thread);
    if stream.is_capturing() {
        return Ok(None);
    }
    let known = tracks::known(&stream);
    let position = match known {
        Some(place) => place.card(),
        None => current_position(process).ok_or(ERROR_NOT_PERMITTED)?,
    };
    if process.share(position).is_whole() {
        return Ok(None);
    }
    let account = process.account(position).ok_or(ERROR_NOT_PERMITTED)?;
    let (is_idle, estimate) = (false, Estimate::UNKNOWN);
    let mut passed = Passed { process, position, account, stream, is_idle, work, estimate, began_ns: now };
    passed.wait_for_gate()?;
    passed.is_idle = known.is_none_or(tracks::Place::is_idle);
    account.launched(passed.estimate.ns());
    Ok(Some(passed))
}

/// The card of the current context.
fn current_position(process: &Process) -> Option<usize> {
    let mut device: CUdevice = 0;
    // SAFETY: a device is written to a device.
    let result = unsafe { cuCtxGetDevice(&raw mut device) };
    (result == SUCCESS).then(|| process.card_of(device))?
}

/// In a child that fork made: nothing was launched, and nobody looks.
pub(crate) fn forget() {
    monitor::forget();
    tracks::forget_all();
    Card::forget_all();
}

// === impl Passed ===

impl Passed {
    #[inline]
    fn wait_for_gate(&mut self) -> Result<(), CUresult> {
        let Self { process, position, account, work, .. } = *self;
        let (Some(card), Some(books)) = (Card::of(position), process.region().card(position)) else {
            return Err(ERROR_NOT_PERMITTED);
        };
        match work {
            Work::Kernel => books.launches.add(1),
            Work::Graph(_) => books.graph_launches.add(1),
        }
        let share = card.terms(process, position, self.began_ns).share;
        books.refill(self.began_ns, share);
        self.estimate = card.estimate(work);
        if card.is_open(books, account, self.estimate, share, self.began_ns) {
            return Ok(());
        }
        if let Some(mut held) = tracks::held(&self.stream) {
            held.act(|track, stream| track.pause(stream, self.began_ns));
        }
        self.estimate = card.wait(process, position, account, work);
        self.began_ns = time::now();
        Ok(())
    }

    /// The launch goes to the driver now.
    #[inline]
    fn begin(&self) {
        if self.is_idle {
            self.begin_idle();
        }
    }

    /// The same, when other gates have held it up since it passed its own: that time is no work.
    #[cold]
    fn begin_late(&mut self) {
        self.began_ns = time::now();
        self.is_idle = tracks::known(&self.stream).is_none_or(tracks::Place::is_idle);
        self.begin();
    }

    /// Work is about to be launched where there is none.
    #[cold]
    fn begin_idle(&self) {
        let Self { process, stream, began_ns, .. } = *self;
        // A handle, of a context or a stream, may be another one's by now.
        let Some(position) = current_position(process) else { return };
        let place = tracks::known(&stream).filter(|place| place.card() == position);
        if place.is_none() && tracks::make(&stream, position).is_none() {
            return;
        }
        if let Some(card) = Card::of(position) {
            card.look(process, position, began_ns);
        }
        if let Some(mut held) = tracks::held(&stream) {
            held.act(|track, stream| {
                if track.is_idle() {
                    track.begin(stream, began_ns);
                }
            });
        }
    }

    /// It was launched, or the driver refused it.
    #[inline]
    fn done(&self, result: CUresult) -> CUresult {
        let Self { process, position, account, stream, work, estimate, began_ns, .. } = *self;
        let Some(card) = Card::of(position) else { return result };
        if result != SUCCESS {
            account.settled(estimate.ns(), 0);
            card.forget_first(estimate);
            return result;
        }
        if let Some(mut held) = tracks::held(&stream) {
            held.act(|track, stream| track.launched(stream, work, estimate, began_ns));
        } else if let Some(books) = process.region().card(position) {
            // No room for one stream more: what can't be measured is paid for as it is estimated.
            account.settled(estimate.ns(), estimate.ns());
            card.forget_first(estimate);
            if !card.terms(process, position, began_ns).share.is_whole() {
                books.debit(estimate.ns());
            }
        }
        monitor::call(process, began_ns);
        result
    }
}

/// So many launches at once, at most: more cards than a container has.
const AT_ONCE: c_uint = 64;
