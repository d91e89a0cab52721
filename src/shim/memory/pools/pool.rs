//! The pools of this process: what each is charged with, and by how much it will grow.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use super::super::quota::Quota;
use crate::cuda::{CUdevice, CUmemoryPool, CUresult, ERROR_OUT_OF_MEMORY, POOL_RESERVED, POOL_USED};
use crate::driver::cuda::cuMemPoolGetAttribute;
use crate::lock::{Held, Lock};

/// Pools of this process that are charged, and how many more there can be: a program that makes more is refused.
const POOLS: usize = 256;
/// What pools grow by.
const GRANULE: u64 = 2 << 20;

static KNOWN: Lock<[Pool; POOLS]> = Lock::new([Pool::NONE; POOLS]);
/// Whether there is any, for those who would otherwise look for nothing.
static ANY: AtomicBool = AtomicBool::new(false);

/// A pool, and what it is charged with.
#[derive(Clone, Copy)]
pub(super) struct Pool {
    pub(super) life: Life,
    pub(super) handle: usize,
    pub(super) card: usize,
    /// Bytes that it is charged with, and those of them that the limit had room for.
    pub(super) charged: u64,
    pub(super) granted: u64,
    /// Bytes that are allocated from it. By the driver's count it may be more, as it frees later than it is asked to.
    pub(super) held: u64,
    /// Bytes that are being allocated from it just now, and by how much it is expected to grow for them.
    pub(super) wanted: u64,
    pub(super) growing: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    None,
    /// Being made or ended: the driver isn't to be asked about it.
    Unsure,
    Live,
    /// A pool of host memory, which costs the card nothing.
    Host,
    /// Gone but for what is still allocated from it, which is what it is charged with.
    Gone,
}

// === impl Pool ===

impl Pool {
    pub(super) const NONE: Self =
        Self { life: Life::None, handle: 0, card: 0, charged: 0, granted: 0, held: 0, wanted: 0, growing: 0 };

    /// Whether it is the living one with this handle.
    fn is(&self, handle: usize) -> bool {
        matches!(self.life, Life::Live | Life::Host) && self.handle == handle
    }

    /// What the driver says of it; 0 if it says nothing.
    pub(super) fn attribute(&self, attribute: c_int) -> u64 {
        let mut value = 0_u64;
        if self.life == Life::Live {
            // SAFETY: it is the handle of a pool that lives; these attributes have 64 bits.
            unsafe { cuMemPoolGetAttribute(handle(self.handle), attribute, (&raw mut value).cast()) };
        }
        value
    }

    /// Charges it with what it has reserved now.
    pub(super) fn reconcile(&mut self) {
        if self.life == Life::Live
            && let Ok(quota) = Quota::of_card(self.card)
        {
            let now = self.attribute(POOL_RESERVED);
            if now != self.charged {
                quota.change(self.charged, now);
            }
            self.charged = now;
            self.granted = self.granted.min(now);
        }
    }

    /// Whether so many more bytes need nothing more of the card, by what is known without a question.
    pub(super) fn has(&self, bytes: u64) -> bool {
        let used = self.held.saturating_add(self.wanted).saturating_add(bytes);
        used <= self.granted.saturating_add(self.growing)
    }

    /// By how much it would grow if so many more bytes were allocated from it.
    pub(super) fn growth(&self, bytes: u64) -> u64 {
        let used = self.attribute(POOL_USED).saturating_add(self.wanted).saturating_add(bytes);
        let there = self.attribute(POOL_RESERVED).min(self.granted).saturating_add(self.growing);
        if used <= there { 0 } else { used.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX).saturating_sub(there) }
    }

    pub(super) fn is_no_longer_wanted(&mut self, bytes: u64, growth: u64) {
        self.wanted = self.wanted.saturating_sub(bytes);
        self.growing = self.growing.saturating_sub(growth);
    }
}

/// The number of a pool; `None` if it is the host's. One that wasn't made by this program's own doing, such as a default
/// one, is entered as of the card `device`.
pub(super) fn find(pool: CUmemoryPool, device: CUdevice) -> Result<Option<usize>, CUresult> {
    let place =
        KNOWN.lock().iter().enumerate().find(|(_, known)| known.is(pool.addr())).map(|(at, known)| (at, known.life));
    if let Some((number, life)) = place {
        return Ok(Some(number).filter(|_| life != Life::Host));
    }
    let card = Quota::of_device(device)?.card;
    enter(Pool { life: Life::Live, handle: pool.addr(), card, ..Pool::NONE }).map(Some)
}

/// The number of a pool that is known.
pub(super) fn known(pool: CUmemoryPool) -> Option<usize> {
    KNOWN.lock().iter().position(|known| known.is(pool.addr()))
}

/// Gives a pool a number: that which it has, if another thread was faster.
pub(super) fn enter(pool: Pool) -> Result<usize, CUresult> {
    let mut all = KNOWN.lock();
    ANY.store(true, Ordering::Relaxed);
    let there = all.iter().position(|known| known.is(pool.handle));
    let number = there.or_else(|| all.iter().position(|free| free.life == Life::None)).ok_or(ERROR_OUT_OF_MEMORY)?;
    if let Some(place) = all.get_mut(number).filter(|_| there.is_none()) {
        *place = pool;
    }
    Ok(number)
}

pub(super) fn with<T>(number: usize, act: impl FnOnce(&mut Pool) -> T) -> Option<T> {
    KNOWN.lock().get_mut(number).map(act)
}

pub(super) fn handle(address: usize) -> CUmemoryPool {
    ptr::with_exposed_provenance_mut(address)
}

/// All of them, while nobody else uses them; `None` if there never was any.
pub(super) fn all() -> Option<Held<'static, [Pool; POOLS]>> {
    ANY.load(Ordering::Relaxed).then(|| KNOWN.lock())
}

/// In a child that fork made: there is none.
pub(in crate::memory) fn forget_all() {
    *KNOWN.reset() = [Pool::NONE; POOLS];
    ANY.store(false, Ordering::Relaxed);
}
