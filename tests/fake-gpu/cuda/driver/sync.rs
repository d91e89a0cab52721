//! Submitting, and waiting for what was submitted.

use std::sync::MutexGuard;
use std::time::Duration;
use std::{hint, ptr};

use fake_card::clock;

use super::engine::Work;
use super::{CHANGED, Driver, driver, wait_on};
use crate::codes::Code;

/// As long as a waiting call may spin. It sleeps all but this, which is also how late the kernel may wake it.
const SPIN: u64 = 50_000;

/// How long a launch into a full queue waits at least, so that it doesn't wake for each kernel.
const ROOM: u64 = 100_000;

/// The longest sleep: what the card does may have changed, by the death of a process above all.
const LOOK: u64 = 10_000_000;

/// How long to wait for what isn't the card's doing before looking again.
const OTHER: Duration = Duration::from_millis(1);

/// Sleeps until a moment of [`clock`].
pub(crate) fn sleep_until(moment: u64) {
    if moment > clock().saturating_add(SPIN) {
        let wake = moment - SPIN;
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(wake / 1_000_000_000).unwrap_or(libc::time_t::MAX),
            tv_nsec: (wake % 1_000_000_000).cast_signed(),
        };
        // SAFETY: the time is valid for reads. An early end by a signal is as good: callers look and sleep again.
        unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const time, ptr::null_mut());
        }
    }
    let end = moment.min(clock().saturating_add(SPIN));
    while clock() < end {
        hint::spin_loop();
    }
}

/// Waits until a ticket of a card is done.
pub(crate) fn finish(device: usize, ticket: u64) -> Result<(), Code> {
    loop {
        let mut state = driver()?;
        let engine = &mut state.devices.get_mut(device).ok_or(Code::INVALID_DEVICE)?.engine;
        engine.poll();
        if engine.is_done(ticket) {
            return Ok(());
        }
        match engine.expected(ticket) {
            Some(moment) => {
                drop(state);
                sleep_until(moment.min(clock() + LOOK));
            }
            None => drop(wait_on(state, Some(OTHER))),
        }
    }
}

/// The state, when a card's queue has room for one more.
pub(crate) fn make_room(
    mut state: MutexGuard<'static, Driver>,
    device: usize,
) -> Result<MutexGuard<'static, Driver>, Code> {
    loop {
        let engine = &mut state.devices.get_mut(device).ok_or(Code::INVALID_DEVICE)?.engine;
        if !engine.is_full() {
            return Ok(state);
        }
        engine.poll();
        if !engine.is_full() {
            return Ok(state);
        }
        let now = clock();
        let moment = engine.expected_room().unwrap_or(0).clamp(now + ROOM, now + LOOK);
        drop(state);
        sleep_until(moment);
        state = driver()?;
    }
}

// === impl Driver ===

impl Driver {
    /// Queues work of a stream.
    pub(crate) fn submit(&mut self, stream: usize, work: Work) -> Result<u64, Code> {
        let stream = self.streams.get_mut(stream)?;
        let engine = &mut self.devices[stream.device].engine;
        let ticket = engine.submit(work);
        stream.last = ticket;
        if self.dozing || engine.is_gated() {
            CHANGED.notify_all();
        }
        Ok(ticket)
    }

    /// Whether all of a ticket's work is done.
    pub(crate) fn is_done(&mut self, device: usize, ticket: u64) -> bool {
        let engine = &mut self.devices[device].engine;
        if !engine.is_done(ticket) {
            engine.poll();
        }
        engine.is_done(ticket)
    }
}
