//! A lock among threads, without the C library.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// A value that one thread at a time uses.
pub(crate) struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

/// Access to the value; dropping it unlocks.
pub(crate) struct Held<'a, T>(&'a Lock<T>);

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Locked, and threads may sleep until it is unlocked.
const CONTENDED: u32 = 2;
const MAX_WAIT_NS: u64 = 10_000_000;

// SAFETY: the state lets one thread at a time to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

// === impl Lock ===

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        Held(self)
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).ok().map(|_| Held(self))
    }

    #[cold]
    fn wait(&self) {
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            sys::wait(&self.state, CONTENDED, MAX_WAIT_NS);
        }
    }

    /// In a child that fork made, whose only thread is the caller: the thread that held it is not here.
    pub(crate) fn reset(&self) -> Held<'_, T> {
        self.state.store(HELD, Ordering::Relaxed);
        Held(self)
    }
}

// === impl Held ===

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: as long as it is held, nobody else uses the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.state.swap(FREE, Ordering::Release) == CONTENDED {
            sys::wake(&self.0.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn lock_excludes_concurrent_threads() {
        static COUNT: Lock<u64> = Lock::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50_000).for_each(|_| *COUNT.lock() += 1));
            }
        });
        let count = COUNT.lock();
        assert_eq!(*count, 200_000);
        assert!(COUNT.try_lock().is_none());
    }
}
