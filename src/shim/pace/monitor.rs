//! The thread that sees when work is done.
//!
//! It exists from the first launch on that is accounted for. Somebody has to see that work is done that nobody waits for:
//! the container would stay busy in the eyes of others, and its gate shut. While work is in flight it looks when the
//! first of it should be done, and then each millisecond until it is; otherwise it sleeps until a launch wakes it. It asks, and records nothing.

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use super::card::Card;
use super::track::Relaxed;
use super::tracks::{self, Place};
use crate::cuda::CUresult;
use crate::linker;
use crate::lock::Lock;
use crate::process::{self, Process};
use crate::sys;
use crate::time;

/// Between looks, ns: the first is about when work is expected to be done.
const OFTEN_NS: u64 = 1_000_000;
const SELDOM_NS: u64 = 4_000_000;
/// As a wake that got lost would be, in the worst case.
const SLEEP_NS: u64 = 1_000_000_000;
const STACK: usize = 256 << 10;

static STATE: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
const LOOKING: u32 = 1;
const ASLEEP: u32 = 2;
/// There can't be one, or there is no use for one any more: the driver has ended.
const NEVER: u32 = 3;

/// Held while it looks, and while what it looks at ends.
static LOOK: Lock<()> = Lock::new(());

type Body = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut u64, *const Attributes, Body, *mut c_void) -> c_int;
type Detach = unsafe extern "C" fn(u64) -> c_int;
type Initialise = unsafe extern "C" fn(*mut Attributes) -> c_int;
type SetStack = unsafe extern "C" fn(*mut Attributes, usize) -> c_int;

/// `pthread_attr_t`: 56 bytes of glibc's on x86_64.
#[repr(C, align(8))]
struct Attributes([u8; 128]);

/// Work was launched: somebody has to look at it.
#[inline]
pub(super) fn call() {
    // The launch is to be seen by who falls asleep now, or its sleep by us.
    fence(Ordering::SeqCst);
    let state = STATE.load(Ordering::Relaxed);
    if state != LOOKING {
        begin(state);
    }
}

#[cold]
fn begin(state: u32) {
    match state {
        ASLEEP => {
            STATE.store(LOOKING, Ordering::SeqCst);
            sys::wake(&STATE);
        }
        NONE if STATE.compare_exchange(NONE, LOOKING, Ordering::SeqCst, Ordering::Relaxed).is_ok() && !start() => {
            STATE.store(NEVER, Ordering::Relaxed);
        }
        // Without a thread, who launches looks.
        NEVER => {
            if let Ok(process) = process::this() {
                stand_in(process);
            }
        }
        _ => {}
    }
}

/// Who waits for work to be done looks, if there is no thread that does.
pub(super) fn stand_in(process: &'static Process) {
    if STATE.load(Ordering::Relaxed) == NEVER {
        let _looking = Relaxed::begin();
        let _all = look(process);
    }
}

/// In a child that fork made: it has no thread yet.
pub(super) fn forget() {
    STATE.store(NONE, Ordering::Relaxed);
    drop(LOOK.reset());
}

/// Does what ends a context while nobody looks at its streams.
pub(super) fn quietly<T>(act: impl FnOnce() -> T) -> T {
    let _nobody_looks = LOOK.lock();
    act()
}

/// Looks at all streams that have work; in how many nanoseconds to look again, if there are any.
fn look(process: &'static Process) -> Result<Option<u64>, CUresult> {
    let _looking = LOOK.lock();
    let (mut busy, mut again_ns) = (0_u64, SELDOM_NS);
    for place in tracks::all().filter(|place| !place.is_idle()) {
        busy |= 1 << (place.card() & 63);
        let Some(mut held) = place.try_hold() else { continue };
        held.act(|track, stream| {
            let watched = track.watch(process, stream, time::now());
            again_ns = again_ns.min(track.left_ns());
            watched
        })?;
    }
    for position in (0..u64::BITS as usize).filter(|position| busy >> position & 1 == 1) {
        if let Some(card) = Card::of(position) {
            card.call_waiting(process, position, time::now());
        }
    }
    Ok((busy != 0).then_some(again_ns.max(OFTEN_NS)))
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    let Ok(process) = process::this() else { return ptr::null_mut() };
    sys::name_thread(c"divvy");
    let _relaxed = Relaxed::begin();
    loop {
        match look(process) {
            Ok(Some(pause)) => sys::sleep(pause),
            Ok(None) => sleep(),
            // The driver has ended, before the process.
            Err(_) => {
                STATE.store(NEVER, Ordering::Relaxed);
                return ptr::null_mut();
            }
        }
    }
}

fn sleep() {
    STATE.store(ASLEEP, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if tracks::all().all(Place::is_idle) {
        Card::rest_all();
        sys::wait(&STATE, ASLEEP, SLEEP_NS);
    }
    STATE.store(LOOKING, Ordering::SeqCst);
}

/// Makes the thread; false if it can't be made.
fn start() -> bool {
    let (create, detach) = (linker::of_libc(c"pthread_create"), linker::of_libc(c"pthread_detach"));
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
        (initialise(&raw mut attributes), set(&raw mut attributes, STACK))
    };
    (results == (0, 0)).then_some(attributes)
}
