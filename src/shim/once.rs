//! A value that the first who needs it makes, while others wait.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// Made once, for ever.
pub(crate) struct Once<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

const NOT_MADE: u32 = 0;
const BEING_MADE: u32 = 1;
const MADE: u32 = 2;
/// How long to wait before looking again; the thread that makes the value wakes the others.
const MAX_WAIT_NS: u64 = 10_000_000;

// SAFETY: the value is written by one thread alone, before `MADE`, and only read after it.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

// === impl Once ===

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self { state: AtomicU32::new(NOT_MADE), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value; made now if it isn't yet. `make` must not ask for it.
    pub(crate) fn get_or_make(&'static self, make: impl FnOnce() -> T) -> &'static T {
        if let Some(value) = self.get() {
            return value;
        }
        match self.state.compare_exchange(NOT_MADE, BEING_MADE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // SAFETY: the exchange let nobody in but us, and readers wait for `MADE`.
                let value = unsafe { (*self.value.get()).write(make()) };
                self.state.store(MADE, Ordering::Release);
                sys::wake(&self.state);
                value
            }
            Err(_) => loop {
                if let Some(value) = self.get() {
                    return value;
                }
                sys::wait(&self.state, BEING_MADE, MAX_WAIT_NS);
            },
        }
    }

    /// The value, if it is made.
    #[inline]
    pub(crate) fn get(&'static self) -> Option<&'static T> {
        // SAFETY: it is written once `MADE` is seen, and never changes again.
        (self.state.load(Ordering::Acquire) == MADE).then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }
}
