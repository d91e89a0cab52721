//! Mutexes between processes that open when their holder dies.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// A robust mutex in shared memory.
#[repr(transparent)]
pub(crate) struct Robust(UnsafeCell<libc::pthread_mutex_t>);

/// What an attempt to take a mutex has found.
pub(crate) enum Taken {
    /// Taken: it was free.
    Free,
    /// Taken from a holder that died: what it guards may be half written.
    Orphaned,
    /// Somebody holds it.
    Held,
}

// SAFETY: made for use by any thread of any process.
unsafe impl Sync for Robust {}

// === impl Robust ===

impl Robust {
    /// Makes the mutex anew. Nobody may use it meanwhile.
    pub(crate) fn initialise(&self) -> io::Result<()> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised first, and the mutex is in memory that stays mapped.
        let codes = unsafe {
            [
                libc::pthread_mutexattr_init(attributes.as_mut_ptr()),
                libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST),
                libc::pthread_mutex_init(self.0.get(), attributes.as_ptr()),
            ]
        };
        codes.into_iter().find(|code| *code != 0).map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
    }

    /// Waits for the mutex.
    pub(crate) fn lock(&self) -> Taken {
        // SAFETY: an initialised mutex.
        self.taken(unsafe { libc::pthread_mutex_lock(self.0.get()) })
    }

    pub(crate) fn try_lock(&self) -> Taken {
        // SAFETY: an initialised mutex.
        self.taken(unsafe { libc::pthread_mutex_trylock(self.0.get()) })
    }

    /// Opens the mutex, which this thread holds.
    pub(crate) fn unlock(&self) {
        // SAFETY: an initialised mutex; by a thread that doesn't hold it the call fails without effect.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }

    fn taken(&self, code: libc::c_int) -> Taken {
        match code {
            0 => Taken::Free,
            libc::EOWNERDEAD => {
                // SAFETY: this thread has just taken the orphaned mutex.
                unsafe { libc::pthread_mutex_consistent(self.0.get()) };
                Taken::Orphaned
            }
            libc::ENOTRECOVERABLE => {
                // Its holder died between taking an orphan and saying so. Nobody can hold it, so it is made anew; were
                // two to do so at once, both would write the same.
                // SAFETY: the bytes of a mutex may be anything before it is initialised.
                unsafe { ptr::write_bytes(self.0.get(), 0, 1) };
                if self.initialise().is_ok() { self.try_lock() } else { Taken::Held }
            }
            _ => Taken::Held,
        }
    }
}
