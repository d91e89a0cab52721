//! Who sees when work is done.
//!
//! Somebody has to see it, also where nobody waits: the container would stay busy in the eyes of others, and its gate shut.
//! A look asks whether marks were reached, pays, and says when what is left should be done; it records nothing. To wake for
//! it costs ten times as much as to look. So threads of the program's look when they are there anyway: who waits at the
//! gate whenever it wakes, and who launches once in a millisecond. A thread of the library's own, which exists from the
//! first launch on that is accounted for, looks only when work should be done and nobody else was there. It comes back
//! the later the more often that was in vain, and while nothing is in flight it sleeps until a launch wakes it.

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::card::Card;
use super::stream::Relaxed;
use super::track::Ended;
use super::tracks::{self, Place};
use crate::cuda::CUresult;
use crate::linker;
use crate::lock::Lock;
use crate::process::{self, Process};
use crate::sys;
use crate::time;

/// Between looks, ns: at least, but for threads that wait, and at most.
const OFTEN_NS: u64 = 1_000_000;
const SELDOM_NS: u64 = 4_000_000;
/// A thread that waits doesn't look again so soon after another one did.
const SOON_NS: u64 = 100_000;
/// So much later than a thread that waits has said that it would look, it may have gone away.
const GRACE_NS: u64 = 2_000_000;
/// Work that takes longer than it was estimated to is looked at again after this part of what it took.
const OVERDUE: u64 = 8;
/// Nobody says that he will wait for longer.
const ABSENT_NS: u64 = 100_000_000;
/// So often it finds nothing in flight before it sleeps until it is woken.
const LINGERS: u32 = 2;
/// As a wake that got lost would be, in the worst case.
const SLEEP_NS: u64 = 1_000_000_000;
const STACK: usize = 256 << 10;

/// When somebody looked last; all of them in nanoseconds.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// When what was in flight then should be done.
static EXPECTED: AtomicU64 = AtomicU64::new(0);
/// Until when there is a thread that waits, and looks.
static ATTENDED: AtomicU64 = AtomicU64::new(0);

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
pub(super) fn call(process: &'static Process, now_ns: u64) {
    // The launch is to be seen by who falls asleep now, or its sleep by us.
    fence(Ordering::SeqCst);
    let state = STATE.load(Ordering::Relaxed);
    if state != LOOKING {
        begin(state);
    }
    if now_ns.abs_diff(LOOKED.load(Ordering::Relaxed)) >= OFTEN_NS {
        pass_by(process, Ended::Sometime);
    }
}

/// Who waits looks what is done; how many nanoseconds from now what was in flight then should be.
pub(super) fn attend(process: &'static Process, now_ns: u64) -> u64 {
    if now_ns.abs_diff(LOOKED.load(Ordering::Relaxed)) >= SOON_NS {
        pass_by(process, Ended::Sometime);
    }
    EXPECTED.load(Ordering::Relaxed).saturating_sub(now_ns)
}

/// A thread goes on waiting until this moment, and looks then.
pub(super) fn waits_until(at_ns: u64) {
    ATTENDED.store(at_ns.saturating_add(GRACE_NS), Ordering::Relaxed);
}

/// It waits no longer.
pub(super) fn waits_no_more() {
    ATTENDED.store(0, Ordering::Relaxed);
}

/// Looks in a thread of the program's, unless another one does.
#[cold]
pub(super) fn pass_by(process: &'static Process, ended: Ended) {
    if let Some(_looking) = LOOK.try_lock() {
        let _relaxed = Relaxed::begin();
        let _driver_that_ended = look(process, ended);
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
        _ => {}
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

/// Looks at all streams that have work, for a thread that holds [`LOOK`]; whether there are any.
fn look(process: &'static Process, ended: Ended) -> Result<bool, CUresult> {
    let (mut busy, mut cost_ns, mut is_unmarked, mut is_waited_for) = (0_u64, 0, false, true);
    for place in tracks::all().filter(|place| !place.is_idle()) {
        busy |= 1 << (place.card() & 63);
        let Some(mut held) = place.try_hold() else { continue };
        held.act(|track, stream| {
            let watched = track.watch(process, stream, time::now(), ended);
            cost_ns = cost_ns.max(track.cost_ns());
            is_unmarked |= track.is_unmarked();
            is_waited_for &= track.is_waited_for();
            watched
        })?;
    }
    let now = time::now();
    let mut left_ns = if busy == 0 { 0 } else { SELDOM_NS };
    for position in (0..u64::BITS as usize).filter(|position| busy >> position & 1 == 1) {
        if let Some(card) = Card::of(position) {
            left_ns = left_ns.min(card.left_ns(process, position, now));
            card.call_waiting(process, position, now);
        }
    }
    let again_ns = match (is_waited_for, is_unmarked) {
        (true, _) if busy != 0 => SELDOM_NS,
        (_, true) => OFTEN_NS.min(left_ns),
        _ => left_ns.max(cost_ns / OVERDUE),
    };
    EXPECTED.store(now.saturating_add(again_ns), Ordering::Relaxed);
    LOOKED.store(now, Ordering::Relaxed);
    Ok(busy != 0)
}

/// In how many nanoseconds somebody has to look, if nobody does before.
fn due_in_ns(now_ns: u64) -> u64 {
    let (looked, attended) = (LOOKED.load(Ordering::Relaxed), ATTENDED.load(Ordering::Relaxed));
    // Of a clock that was set back nothing is believed.
    if looked > now_ns || attended.saturating_sub(now_ns) > ABSENT_NS {
        return 0;
    }
    let expected = EXPECTED.load(Ordering::Relaxed).clamp(looked + OFTEN_NS, looked + SELDOM_NS);
    expected.max(attended).saturating_sub(now_ns)
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    let Ok(process) = process::this() else { return ptr::null_mut() };
    sys::name_thread(c"divvy");
    let _relaxed = Relaxed::begin();
    // How long to stay away at least, when others look; when we did; and how often nothing was in flight then.
    let (mut pause_ns, mut own_ns, mut idle) = (OFTEN_NS, 0, 0);
    loop {
        let due_ns = due_in_ns(time::now());
        if due_ns > 0 {
            if LOOKED.load(Ordering::Relaxed) != own_ns {
                (pause_ns, idle) = ((2 * pause_ns).min(SELDOM_NS), 0);
            }
            sys::sleep(due_ns.max(pause_ns));
            continue;
        }
        let looking = LOOK.lock();
        let looked = look(process, Ended::Sometime);
        drop(looking);
        (pause_ns, own_ns) = (OFTEN_NS, LOOKED.load(Ordering::Relaxed));
        match looked {
            Ok(true) => idle = 0,
            // Much is launched some moments after the last was done: to be woken for it costs more than to wait.
            Ok(false) if idle < LINGERS => {
                idle += 1;
                sys::sleep(SELDOM_NS);
            }
            Ok(false) => {
                sleep();
                idle = 0;
            }
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
