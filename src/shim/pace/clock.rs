//! Time, and how it counts on a card.

use core::ffi::{c_int, c_long};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use divvy_region::clock::{Page, Reading};
use divvy_region::layout::LINE;

use crate::limits::Id;
use crate::linker;
use crate::process::place;
use crate::sys::{self, File};

#[repr(C)]
struct Timespec {
    seconds: c_long,
    nanoseconds: c_long,
}

type ClockGetTime = unsafe extern "C" fn(c_int, *mut Timespec) -> c_int;

const CLOCK_MONOTONIC: c_int = 1;
/// The C library's `clock_gettime`, which reads the clock without a system call; 0: not looked for, 1: it has none.
static CLOCK_GETTIME: AtomicUsize = AtomicUsize::new(0);
const NONE: usize = 1;

/// How often the page of a card is looked for that isn't there.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// `CLOCK_MONOTONIC`, in nanoseconds.
#[inline]
pub(super) fn now() -> u64 {
    let found = match CLOCK_GETTIME.load(Ordering::Relaxed) {
        0 => find(),
        found => found,
    };
    if found == NONE {
        return sys::now();
    }
    // SAFETY: the C library's function of this name has these arguments.
    let get: ClockGetTime = unsafe { mem::transmute(ptr::with_exposed_provenance::<()>(found)) };
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: a time is written to a time.
    unsafe { get(CLOCK_MONOTONIC, &raw mut time) };
    (time.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(time.nanoseconds as u64)
}

#[cold]
fn find() -> usize {
    let found = linker::of_libc(c"clock_gettime").max(NONE);
    CLOCK_GETTIME.store(found, Ordering::Relaxed);
    found
}

/// The daemon's page of a card, once there is one.
pub(super) struct Clock {
    page: AtomicPtr<u8>,
    looked_ns: AtomicU64,
}

// === impl Clock ===

impl Clock {
    pub(super) const fn new() -> Self {
        Self { page: AtomicPtr::new(ptr::null_mut()), looked_ns: AtomicU64::new(0) }
    }

    /// What the daemon says of the card now. `None`: there is no daemon that says anything.
    #[inline]
    pub(super) fn read(&self, id: Option<Id>, now_ns: u64) -> Option<Reading> {
        let page = match self.page.load(Ordering::Acquire) {
            page if page.is_null() => self.map(id, now_ns)?,
            page => page,
        };
        // SAFETY: whatever is kept there was mapped for ever, and only the daemon writes to it.
        unsafe { Page::new(page, LINE) }.ok()?.read()
    }

    #[cold]
    fn map(&self, id: Option<Id>, now_ns: u64) -> Option<*mut u8> {
        let looked = self.looked_ns.load(Ordering::Relaxed);
        let is_due = looked == 0 || now_ns.saturating_sub(looked) >= LOOK_EVERY_NS;
        if !is_due || self.looked_ns.compare_exchange(looked, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return None;
        }
        let file = File::open(place::clock(id?.as_str()).as_c()).ok()?;
        // What is shorter would end this process when it is read.
        if file.length().ok()? < LINE as u64 {
            return None;
        }
        let page = file.map(LINE, false).ok()?;
        self.page.store(page, Ordering::Release);
        Some(page)
    }
}
