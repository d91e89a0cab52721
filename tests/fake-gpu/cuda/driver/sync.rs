//! Submitting, and waiting for what was submitted.

use std::sync::MutexGuard;
use std::time::Duration;
use std::{hint, ptr};

use fake_card::clock;

use super::context::Stream;
use super::engine::Engine;
use super::work::Work;
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
    wait(device, |engine| engine.is_done(ticket), |engine| engine.expected(ticket))
}

/// Waits until all that was submitted to a card up to a ticket is done.
pub(crate) fn finish_all(device: usize, ticket: u64) -> Result<(), Code> {
    wait(device, |engine| engine.is_all_done(ticket), Engine::expected_all)
}

fn wait(
    device: usize,
    is_done: impl Fn(&Engine) -> bool,
    expected: impl Fn(&Engine) -> Option<u64>,
) -> Result<(), Code> {
    loop {
        let mut state = driver()?;
        let engine = &mut state.devices.get_mut(device).ok_or(Code::INVALID_DEVICE)?.engine;
        engine.poll();
        if is_done(engine) {
            return Ok(());
        }
        match expected(engine) {
            Some(moment) => {
                drop(state);
                sleep_until(moment.min(clock() + LOOK));
            }
            None => drop(wait_on(state, Some(OTHER))),
        }
    }
}

/// The state, when a stream's queue has room for one more.
pub(crate) fn make_room(
    mut state: MutexGuard<'static, Driver>,
    stream: usize,
) -> Result<MutexGuard<'static, Driver>, Code> {
    loop {
        let device = state.streams.get(stream)?.device;
        let engine = &mut state.devices.get_mut(device).ok_or(Code::INVALID_DEVICE)?.engine;
        if !engine.is_full(stream) {
            return Ok(state);
        }
        engine.poll();
        if !engine.is_full(stream) {
            return Ok(state);
        }
        let now = clock();
        let moment = engine.expected_room(stream).unwrap_or(0).clamp(now + ROOM, now + LOOK);
        drop(state);
        sleep_until(moment);
        state = driver()?;
    }
}

// === impl Driver ===

impl Driver {
    /// Queues work of a stream, behind what its context makes it wait for.
    pub(crate) fn submit(&mut self, stream: usize, work: Work) -> Result<u64, Code> {
        self.submit_behind(stream, &[], work)
    }

    /// The same, also behind other work of the card.
    pub(super) fn submit_behind(&mut self, stream: usize, tickets: &[u64], work: Work) -> Result<u64, Code> {
        let Stream { context, device, last, .. } = *self.streams.get(stream)?;
        let legacy = self.contexts.get(context).ok().map(|context| context.legacy);
        // The default stream and those that aren't said to be independent of it wait for each other.
        let others: Vec<u64> = if legacy == Some(stream) {
            let blocking = self.streams.iter().filter(|(_, other)| other.context == context && other.is_blocking());
            blocking.map(|(_, other)| other.last).collect()
        } else if self.streams.get(stream)?.is_blocking() {
            legacy.and_then(|legacy| self.streams.get(legacy).ok()).map(|legacy| legacy.last).into_iter().collect()
        } else {
            Vec::new()
        };
        let engine = &mut self.devices[device].engine;
        let ticket = engine.submit(stream, others.into_iter().chain(tickets.iter().copied()).chain([last]), work);
        if self.dozing || engine.must_look() {
            CHANGED.notify_all();
        }
        self.streams.get_mut(stream)?.last = ticket;
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
