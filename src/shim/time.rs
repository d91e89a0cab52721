//! Time, in nanoseconds of `CLOCK_MONOTONIC`.

use core::ffi::c_int;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::linker;
use crate::sys::{CLOCK_MONOTONIC, Timespec};

type ClockGetTime = unsafe extern "C" fn(c_int, *mut Timespec) -> c_int;

/// The C library's `clock_gettime`, which reads the clock without a system call; 0: not looked for, 1: it has none.
static CLOCK_GETTIME: AtomicUsize = AtomicUsize::new(0);
const NONE: usize = 1;

#[inline]
pub(crate) fn now() -> u64 {
    let found = match CLOCK_GETTIME.load(Ordering::Relaxed) {
        0 => find(),
        found => found,
    };
    if found == NONE {
        return Timespec::now().as_ns();
    }
    // SAFETY: the C library's function of this name has these arguments.
    let get: ClockGetTime = unsafe { mem::transmute(ptr::with_exposed_provenance::<()>(found)) };
    let mut time = Timespec::default();
    // SAFETY: a time is written to a time.
    unsafe { get(CLOCK_MONOTONIC, &raw mut time) };
    time.as_ns()
}

#[cold]
fn find() -> usize {
    let found = linker::of_libc(c"clock_gettime").max(NONE);
    CLOCK_GETTIME.store(found, Ordering::Relaxed);
    found
}
