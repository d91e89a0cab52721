//! Polling for completed work.
//!
//! A container whose completed work nobody polls for counts as busy, and its gate stays shut, also where no thread waits.
//! A poll asks whether markers were reached, charges, and says when what is left should be done; it records nothing. To wake for
//! it costs ten times as much as to poll. So threads of the program's poll when they are there anyway: who waits at the
//! gate whenever it wakes, and who launches once in a millisecond. A thread of the library's own, which exists from the
//! first launch on that is accounted for, looks only when work should be done and nobody else was there. It comes back
//! the later the more often that was in vain, and while nothing is in flight it sleeps until a launch wakes it.

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::card::Card;
use super::stream::Relaxed;
use super::track::Completed;
use super::tracks::{self, StreamEntry};
use crate::linker;
use crate::lock::Lock;
use crate::process::{self, Process};
use crate::sys;
use crate::time;

/// The shortest time between two polls, but for threads that wait at a gate.
const MIN_POLL_NS: u64 = 1_000_000;
/// The longest time between two polls while work is in flight.
const MAX_POLL_NS: u64 = 4_000_000;
/// The shortest time between a poll and that of a thread that waits at a gate.
const MIN_WAITER_POLL_NS: u64 = 100_000;
/// How late a waiting thread's poll may be before the monitor polls in its place.
const WAITER_GRACE_NS: u64 = 2_000_000;
/// Overdue work is polled again after the time that it has taken, divided by this.
const OVERDUE_DIVISOR: u64 = 8;
/// No thread announces a longer wait: a later moment is of a clock that was set back.
const MAX_WAITER_NS: u64 = 100_000_000;
/// Polls that find nothing in flight before the monitor sleeps until a launch wakes it, and the time between them.
const IDLE_POLLS: u32 = 2;
const IDLE_POLL_NS: u64 = 8_000_000;
/// The longest sleep without a launch, should a wake-up be lost.
const MAX_IDLE_SLEEP_NS: u64 = 1_000_000_000;
const STACK_BYTES: usize = 256 << 10;

/// The moment of the last poll, ns of `CLOCK_MONOTONIC`, as the two below.
static LAST_POLL_NS: AtomicU64 = AtomicU64::new(0);
/// When the work in flight at that poll should be done.
static EXPECTED_END_NS: AtomicU64 = AtomicU64::new(0);
/// Until when a waiting thread will poll.
static WAITER_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

static STATE: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
const POLLING: u32 = 1;
const ASLEEP: u32 = 2;
/// A thread can't be made, or is of no use any more: the driver was deinitialised.
const NEVER: u32 = 3;

/// Held during a poll, and while a context ends that a poll would look at.
static POLL: Lock<()> = Lock::new(());

type Body = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut u64, *const Attributes, Body, *mut c_void) -> c_int;
type Detach = unsafe extern "C" fn(u64) -> c_int;
type Initialise = unsafe extern "C" fn(*mut Attributes) -> c_int;
type SetStack = unsafe extern "C" fn(*mut Attributes, usize) -> c_int;

/// `pthread_attr_t`: 56 bytes of glibc's on x86_64.
#[repr(C, align(8))]
struct Attributes([u8; 128]);

/// Notes that work was launched, and makes sure that something polls it.
#[inline]
pub(super) fn work_launched(process: &'static Process, now_ns: u64) {
    // The launch is to be seen by who falls asleep now, or its sleep by us.
    fence(Ordering::SeqCst);
    let state = STATE.load(Ordering::Relaxed);
    if state != POLLING {
        begin(state);
    }
    if now_ns.abs_diff(LAST_POLL_NS.load(Ordering::Relaxed)) >= MIN_POLL_NS {
        try_poll(process, Completed::Sometime);
    }
}

/// Who waits looks what is done; how many nanoseconds from now what was in flight then should be.
pub(super) fn poll_for_waiter(process: &'static Process, now_ns: u64) -> u64 {
    if now_ns.abs_diff(LAST_POLL_NS.load(Ordering::Relaxed)) >= MIN_WAITER_POLL_NS {
        try_poll(process, Completed::Sometime);
    }
    EXPECTED_END_NS.load(Ordering::Relaxed).saturating_sub(now_ns)
}

/// A thread goes on waiting until this moment, and looks then.
pub(super) fn waiter_until(at_ns: u64) {
    WAITER_UNTIL_NS.store(at_ns.saturating_add(WAITER_GRACE_NS), Ordering::Relaxed);
}

/// Notes that the thread waits no longer.
pub(super) fn waiter_left() {
    WAITER_UNTIL_NS.store(0, Ordering::Relaxed);
}

/// Polls in a thread of the program's, unless another one does.
#[cold]
pub(super) fn try_poll(process: &'static Process, completed: Completed) {
    if let Some(_polling) = POLL.try_lock() {
        let _relaxed = Relaxed::begin();
        poll(process, completed);
    }
}

#[cold]
fn begin(state: u32) {
    match state {
        ASLEEP => {
            STATE.store(POLLING, Ordering::SeqCst);
            sys::wake(&STATE);
        }
        NONE if STATE.compare_exchange(NONE, POLLING, Ordering::SeqCst, Ordering::Relaxed).is_ok() && !start() => {
            STATE.store(NEVER, Ordering::Relaxed);
        }
        _ => {}
    }
}

/// In a child that fork made: it has no thread yet.
pub(super) fn forget() {
    STATE.store(NONE, Ordering::Relaxed);
    drop(POLL.reset());
}

/// Does what ends a context while nobody looks at its streams.
pub(super) fn while_not_polling<T>(act: impl FnOnce() -> T) -> T {
    let _nobody_looks = POLL.lock();
    act()
}

/// Polls all streams that have work, for a thread that holds [`POLL`]; whether there are any. `None`: the driver was
/// deinitialised.
fn poll(process: &'static Process, completed: Completed) -> Option<bool> {
    let mut is_initialised = true;
    let mut busy = 0_u64;
    let mut cost_ns = 0;
    let mut is_unmarked = false;
    let mut has_waiter = true;
    for entry in tracks::all().filter(|entry| !entry.is_idle()) {
        busy |= 1 << (entry.card() & 63);
        let Some(mut locked) = entry.try_lock() else { continue };
        locked.update(|track, stream| {
            is_initialised &= track.poll(process, stream, time::now(), completed);
            cost_ns = cost_ns.max(track.cost_ns());
            is_unmarked |= track.is_unmarked();
            has_waiter &= track.has_waiter();
        });
    }
    let now = time::now();
    let mut remaining_ns = if busy == 0 { 0 } else { MAX_POLL_NS };
    for position in (0..u64::BITS as usize).filter(|position| busy >> position & 1 == 1) {
        if let Some(card) = Card::at(position) {
            remaining_ns = remaining_ns.min(card.remaining_ns(process, position));
            card.wake_waiting(process, position, now);
        }
    }
    let again_ns = match (has_waiter, is_unmarked) {
        (true, _) if busy != 0 => MAX_POLL_NS,
        (_, true) => MIN_POLL_NS.min(remaining_ns),
        _ => remaining_ns.max(cost_ns / OVERDUE_DIVISOR),
    };
    EXPECTED_END_NS.store(now.saturating_add(again_ns), Ordering::Relaxed);
    LAST_POLL_NS.store(now, Ordering::Relaxed);
    is_initialised.then_some(busy != 0)
}

/// In how many nanoseconds somebody has to poll, if nobody does before.
fn due_in_ns(now_ns: u64) -> u64 {
    let polled = LAST_POLL_NS.load(Ordering::Relaxed);
    let waiter_until = WAITER_UNTIL_NS.load(Ordering::Relaxed);
    // Of a clock that was set back nothing is believed.
    if polled > now_ns || waiter_until.saturating_sub(now_ns) > MAX_WAITER_NS {
        return 0;
    }
    let expected = EXPECTED_END_NS.load(Ordering::Relaxed).clamp(polled + MIN_POLL_NS, polled + MAX_POLL_NS);
    expected.max(waiter_until).saturating_sub(now_ns)
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    let Ok(process) = process::this() else { return ptr::null_mut() };
    sys::name_thread(c"divvy");
    let _relaxed = Relaxed::begin();
    // How long to stay away at least, when others poll; when we did; and how often nothing was in flight then.
    let mut pause_ns = MIN_POLL_NS;
    let mut own_ns = 0;
    let mut idle = 0;
    loop {
        let due_ns = due_in_ns(time::now());
        if due_ns > 0 {
            if LAST_POLL_NS.load(Ordering::Relaxed) != own_ns {
                (pause_ns, idle) = ((2 * pause_ns).min(MAX_POLL_NS), 0);
            }
            sys::sleep(due_ns.max(pause_ns));
            continue;
        }
        let polling = POLL.lock();
        let polled = poll(process, Completed::Sometime);
        drop(polling);
        (pause_ns, own_ns) = (MIN_POLL_NS, LAST_POLL_NS.load(Ordering::Relaxed));
        match polled {
            Some(true) => idle = 0,
            // Much is launched some moments after the last was done: to be woken for it costs more than to wait.
            Some(false) if idle < IDLE_POLLS => {
                idle += 1;
                sys::sleep(IDLE_POLL_NS);
            }
            Some(false) => {
                sleep();
                idle = 0;
            }
            // Before the process ended.
            None => {
                STATE.store(NEVER, Ordering::Relaxed);
                return ptr::null_mut();
            }
        }
    }
}

fn sleep() {
    STATE.store(ASLEEP, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if tracks::all().all(StreamEntry::is_idle) {
        sys::wait(&STATE, ASLEEP, MAX_IDLE_SLEEP_NS);
    }
    STATE.store(POLLING, Ordering::SeqCst);
}

/// Makes the thread; false if it can't be made.
fn start() -> bool {
    let create = linker::of_libc(c"pthread_create");
    let detach = linker::of_libc(c"pthread_detach");
    if create == 0 || detach == 0 {
        return false;
    }
    // SAFETY: the C library's functions of these names have these arguments.
    let (create, detach): (Create, Detach) = unsafe {
        let function = |address| ptr::with_exposed_provenance::<()>(address);
        (mem::transmute::<*const (), Create>(function(create)), mem::transmute::<*const (), Detach>(function(detach)))
    };
    let signals = sys::block_signals();
    let small = small_stack();
    let mut thread = 0;
    // SAFETY: a thread is written to a thread; the attributes were made by the C library.
    let made = unsafe {
        let attributes = small.as_ref().map_or(ptr::null(), ptr::from_ref);
        match create(&raw mut thread, attributes, run, ptr::null_mut()) {
            // Thread-locals of the program's libraries may need more than we would.
            failed if failed != 0 && !attributes.is_null() => {
                create(&raw mut thread, ptr::null(), run, ptr::null_mut())
            }
            made => made,
        }
    };
    sys::restore_signals(signals);
    if made == 0 {
        // SAFETY: the thread that was just made; nobody waits for its end.
        unsafe { detach(thread) };
    }
    made == 0
}

fn small_stack() -> Option<Attributes> {
    let functions = (linker::of_libc(c"pthread_attr_init"), linker::of_libc(c"pthread_attr_setstacksize"));
    if functions.0 == 0 || functions.1 == 0 {
        return None;
    }
    let mut attributes = Attributes([0; 128]);
    // SAFETY: the C library's functions of these names have these arguments; there is more room than they need.
    let results = unsafe {
        let initialise: Initialise = mem::transmute(ptr::with_exposed_provenance::<()>(functions.0));
        let set: SetStack = mem::transmute(ptr::with_exposed_provenance::<()>(functions.1));
        (initialise(&raw mut attributes), set(&raw mut attributes, STACK_BYTES))
    };
    (results == (0, 0)).then_some(attributes)
}
