//! Which hook stands before which of the driver's functions, by their addresses.
//!
//! Names are no help once the driver has been asked: it answers one name with different functions, by the version and the
//! flags that come with it. What it answers is compared with what it calls by exact names.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Functions of one library: those that are hooked, and where the real ones are.
pub(crate) struct Addresses<const N: usize> {
    /// By hook. 0: the library has none of that name, or hasn't been asked.
    real: [AtomicUsize; N],
}

// === impl Addresses ===

impl<const N: usize> Addresses<N> {
    pub(crate) const fn new() -> Self {
        Self { real: [const { AtomicUsize::new(0) }; N] }
    }

    /// The real function.
    #[inline]
    pub(crate) fn real(&self, hook: usize) -> Option<usize> {
        self.real.get(hook).map(|real| real.load(Ordering::Relaxed)).filter(|real| *real != 0)
    }

    pub(crate) fn learn(&self, hook: usize, real: usize) {
        if let Some(known) = self.real.get(hook) {
            known.store(real, Ordering::Release);
        }
    }

    /// The hook of the function at an address; of several names for one function the first.
    pub(crate) fn hook_of(&self, address: usize) -> Option<usize> {
        self.real.iter().position(|real| address != 0 && real.load(Ordering::Relaxed) == address)
    }
}
