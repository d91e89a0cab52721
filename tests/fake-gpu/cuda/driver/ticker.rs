//! The one thread of the library.
//!
//! It is what keeps the process on its cards: the locks that prove it alive are this thread's. While there is work it looks
//! at the cards every other millisecond, so that their past is settled and read, and it calls the program's host functions.

use std::ffi::c_void;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};
use std::{io, mem, ptr, thread};

use fake_card::{Card, Member, clock};

use super::engine::{Gate, HostCall};
use super::{CHANGED, Driver};
use crate::codes::Code;

/// Between two looks while there is work.
const LOOK: Duration = Duration::from_millis(1);

/// For how long the thread goes on looking when there is none, so that the next launch needn't wake it.
const LINGER: Duration = Duration::from_millis(200);

/// Starts the thread, which joins the cards. `None` for one that is full.
pub(super) fn start(cards: Vec<Card>) -> io::Result<Vec<Option<Member>>> {
    let (joined, members) = sync_channel(1);
    // The program's signals are the program's threads' business.
    let blocked = block_signals();
    let started = thread::Builder::new().name("fake-cuda".to_owned()).spawn(move || run(&cards, &joined));
    restore_signals(&blocked);
    started?;
    members.recv().map_err(io::Error::other)
}

fn run(cards: &[Card], joined: &SyncSender<Vec<Option<Member>>>) {
    if joined.send(cards.iter().map(Card::join).collect()).is_ok() {
        tick();
    }
}

fn tick() {
    let mut driver = super::wait_for_driver();
    let mut worked = Instant::now();
    loop {
        let mut pause = LOOK;
        for device in 0..driver.devices.len() {
            driver.devices[device].engine.poll();
            match driver.devices[device].engine.gate() {
                Gate::Call(call) => {
                    drop(driver);
                    perform(call);
                    driver = super::wait_for_driver();
                    driver.devices[device].engine.pass();
                    pause = Duration::ZERO;
                    CHANGED.notify_all();
                }
                Gate::Wait { device: other, ticket } if driver.devices[other].engine.is_done(ticket) => {
                    driver.devices[device].engine.pass();
                    pause = Duration::ZERO;
                }
                Gate::Card(expected) => {
                    pause = pause.min(Duration::from_nanos(expected.saturating_sub(clock())));
                }
                Gate::Open | Gate::Wait { .. } => {}
            }
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
        driver = super::wait_on(driver, Some(pause));
    }
}

fn perform(call: HostCall) {
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
    fn is_idle(&self) -> bool {
        self.devices.iter().all(|device| device.engine.is_idle())
    }
}
