//! The library's threads.
//!
//! One keeps the process on its cards: the locks that prove it alive are this thread's. While there is work it looks at the
//! cards every other millisecond, so that their past is settled and read, and more often while something waits for what
//! isn't the card's doing. The other calls the program's host functions, one at a time, which may take or wait for what they
//! like.

use std::ffi::c_void;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};
use std::{io, mem, ptr, thread};

use fake_card::{Card, Member};

use super::work::HostCall;
use super::{CHANGED, Driver};
use crate::codes::Code;

/// Between two looks while there is work.
const LOOK: Duration = Duration::from_millis(1);

/// Between two looks while something waits that may happen at any time: how late it is noticed.
const CLOSE_LOOK: Duration = Duration::from_micros(100);

/// For how long the thread goes on looking when there is none, so that the next launch needn't wake it.
const LINGER: Duration = Duration::from_millis(200);

/// A host function whose turn it is, of a card and by its ticket.
type Call = (usize, u64, HostCall);

/// Starts the threads, of which one joins the cards. `None` for one that is full.
pub(super) fn start(cards: Vec<Card>) -> io::Result<Vec<Option<Member>>> {
    let (joined, members) = sync_channel(1);
    // The program's signals are the program's threads' business.
    let blocked = block_signals();
    let (caller, calls) = channel();
    let thread = |name: &str| thread::Builder::new().name(name.to_owned());
    let started = thread("fake-cuda").spawn(move || run(&cards, &joined, &caller));
    // A thread that begins later, when the program has no memory left, would be the program's end.
    let (begun, calls_begun) = sync_channel(1);
    let started =
        started.and_then(|_| thread("fake-cuda-calls").spawn(move || begun.send(()).map(|()| perform(&calls))));
    restore_signals(&blocked);
    started?;
    calls_begun.recv().map_err(io::Error::other)?;
    members.recv().map_err(io::Error::other)
}

fn run(cards: &[Card], joined: &SyncSender<Vec<Option<Member>>>, caller: &Sender<Call>) {
    if joined.send(cards.iter().map(Card::join).collect()).is_ok() {
        tick(caller);
    }
}

fn tick(caller: &Sender<Call>) {
    let mut driver = super::wait_for_driver();
    let mut worked = Instant::now();
    loop {
        if driver.look(caller) {
            CHANGED.notify_all();
            continue;
        }
        if driver.is_idle() {
            if worked.elapsed() > LINGER {
                driver.dozing = true;
                driver = super::wait_on(driver, None);
                driver.dozing = false;
                continue;
            }
        } else {
            worked = Instant::now();
        }
        let pause = if driver.must_look() { CLOSE_LOOK } else { LOOK };
        driver = super::wait_on(driver, Some(pause));
    }
}

fn perform(calls: &Receiver<Call>) {
    for (device, ticket, call) in calls {
        match call {
            HostCall::Function { function, data } => {
                // SAFETY: the program's own function, with the argument that it gave for it.
                unsafe { function(ptr::with_exposed_provenance_mut(data)) }
            }
            HostCall::Callback { function, stream, data } => {
                let data: *mut c_void = ptr::with_exposed_provenance_mut(data);
                // SAFETY: as above.
                unsafe { function(stream, Code::SUCCESS.0, data) }
            }
        }
        let mut driver = super::wait_for_driver();
        driver.devices[device].engine.poll();
        driver.devices[device].engine.pass(ticket);
        CHANGED.notify_all();
    }
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: the sets are plain bits, valid when zeroed, and valid for writes.
    unsafe {
        let (mut all, mut before) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

// === impl Driver ===

impl Driver {
    /// Learns what has run on all cards, and hands out the host functions whose turn it is. Whether something goes on that
    /// waited.
    fn look(&mut self, caller: &Sender<Call>) -> bool {
        let mut goes_on = false;
        for device in 0..self.devices.len() {
            let engine = &mut self.devices[device].engine;
            goes_on |= engine.poll();
            while let Some((ticket, call)) = engine.call() {
                if caller.send((device, ticket, call)).is_err() {
                    break;
                }
            }
            let waits: Vec<_> = engine.waits().collect();
            for (ticket, other, its) in waits {
                if self.devices[other].engine.is_done(its) {
                    self.devices[device].engine.pass(ticket);
                    goes_on = true;
                }
            }
        }
        goes_on
    }

    fn must_look(&self) -> bool {
        self.devices.iter().any(|device| device.engine.must_look())
    }

    fn is_idle(&self) -> bool {
        self.devices.iter().all(|device| device.engine.is_idle())
    }
}
