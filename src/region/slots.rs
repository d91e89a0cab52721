//! Which process owns which slot, and what becomes of a slot when its process is gone.
//!
//! A slot is claimed, taken over and freed only by the holder of its lock. A claimer keeps the lock as long as it lives;
//! the kernel drops it when the process ends, however it ends. A slot is dead if its lock is free *and* its process is
//! gone: a process that closes all its descriptors loses its lock and lives on.
//!
//! Each change is written so that a process killed between any two of its steps leaves a slot that is either free or dead,
//! and the next one who gets its lock starts over: first the uses are zeroed, then the slot is freed, then the new identity
//! is written, and at last the slot is claimed. Slots never move, so nobody needs to be told.
//!
//! A child that fork made owns nothing: it forgets its parent's slot and claims its own. An image that exec started finds
//! the slot of the image before by its own process id and start time, and takes it over.

use core::error::Error;
use core::fmt::{self, Display};

use crate::layout::{Region, Slot};
use crate::sync::{Ordering, spin_loop};

#[cfg(all(test, not(loom)))]
mod tests;

/// A slot of zeros is free.
pub(crate) const FREE: u32 = 0;
pub(crate) const CLAIMED: u32 = 1;

/// How often a slot of our own is tried for while somebody looks whether it is dead, which takes microseconds.
const LOCK_TRIES: u32 = if cfg!(loom) { 2 } else { 10_000 };

/// The world outside of the region: locks of slots, and which processes live.
///
/// The real one locks the byte at offset `slot` of the region's file by `F_SETLK`. Such a lock belongs to a process, so
/// threads of one process are kept apart by a lock of their own, around every call of [`Region::claim`] and
/// [`Region::reap`]; and it is lost when the process closes any descriptor of the file.
pub trait Locks {
    /// Takes the lock of a slot, without waiting; false if another process holds it.
    fn try_lock(&self, slot: usize) -> bool;

    /// Gives the lock of a slot back.
    fn unlock(&self, slot: usize);

    /// Whether the process `pid` that started at `started` lives, both as in [`Owner`]. In doubt it does.
    fn is_alive(&self, pid: u32, started: u64) -> bool;
}

/// Who owns a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The process, as numbered in its container.
    pub pid: u32,
    /// When it started: field 22 of `/proc/<pid>/stat`, in clock ticks since boot.
    pub started: u64,
    /// Drawn at random for each claim. An owner that finds another nonce in its slot has lost the slot to a later image, or
    /// to another copy of the library in the same process.
    pub nonce: u64,
    /// The process's name, as in `/proc/<pid>/comm`, with zeros behind.
    pub comm: [u8; 16],
}

/// All slots are owned by living processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

// === impl Region ===

impl Region<'_> {
    /// Claims a slot for `owner`, who keeps its lock, and says which: the one that it owned before exec, else the first that
    /// is free or dead. Its uses are zero.
    ///
    /// # Errors
    /// [`Full`]; then nothing was changed.
    pub fn claim(&self, locks: &impl Locks, owner: &Owner) -> Result<usize, Full> {
        if let Some(slot) = self.slots.iter().position(|slot| slot.is_of(owner.pid, owner.started)) {
            // Nobody else changes it while this process lives, lock or not. The lock tells the daemon our process id.
            for _ in 0..LOCK_TRIES {
                if locks.try_lock(slot) {
                    break;
                }
                spin_loop();
            }
            self.write_owner(slot, owner);
            return Ok(slot);
        }
        for (index, slot) in self.slots.iter().enumerate() {
            if !locks.try_lock(index) {
                continue;
            }
            if slot.is_owned_by_the_living(locks) {
                locks.unlock(index);
                continue;
            }
            self.write_owner(index, owner);
            return Ok(index);
        }
        Err(Full)
    }

    /// Frees the slots of dead processes, and says how many there were. `own` is the caller's slot, which it must name:
    /// looking at it would cost its lock.
    pub fn reap(&self, locks: &impl Locks, own: Option<usize>) -> usize {
        let high = self.header.high.load(Ordering::Acquire) as usize;
        let mut reaped = 0;
        for (index, slot) in self.slots.iter().enumerate().take(high) {
            if Some(index) == own || slot.is_free() || !locks.try_lock(index) {
                continue;
            }
            // Looked at again, now that nobody changes it.
            if !slot.is_free() && !slot.is_owned_by_the_living(locks) {
                self.free(index);
                reaped += 1;
            }
            locks.unlock(index);
        }
        reaped
    }

    /// Owner of a slot; `None` if it is free.
    pub fn owner(&self, slot: usize) -> Option<Owner> {
        self.slots.get(slot).filter(|slot| !slot.is_free()).map(Slot::owner)
    }

    fn write_owner(&self, index: usize, owner: &Owner) {
        self.free(index);
        let Some(slot) = self.slots.get(index) else { return };
        slot.pid.store(owner.pid, Ordering::Relaxed);
        slot.started.store(owner.started, Ordering::Relaxed);
        slot.nonce.store(owner.nonce, Ordering::Relaxed);
        let (words, _) = owner.comm.as_chunks();
        for (word, bytes) in slot.comm.iter().zip(words) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        let high = u32::try_from(index + 1).unwrap_or(u32::MAX);
        self.header.high.fetch_max(high, Ordering::Release);
        slot.state.store(CLAIMED, Ordering::Release);
    }

    fn free(&self, index: usize) {
        for card in 0..self.cards() {
            if let Some(line) = self.uses(card).and_then(|uses| uses.get(index)) {
                line.clear();
            }
        }
        if let Some(slot) = self.slots.get(index) {
            slot.state.store(FREE, Ordering::Release);
        }
    }
}

// === impl Slot ===

impl Slot {
    pub(crate) fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == FREE
    }

    fn is_of(&self, pid: u32, started: u64) -> bool {
        let same = self.pid.load(Ordering::Relaxed) == pid && self.started.load(Ordering::Relaxed) == started;
        same && !self.is_free()
    }

    fn is_owned_by_the_living(&self, locks: &impl Locks) -> bool {
        !self.is_free() && locks.is_alive(self.pid.load(Ordering::Relaxed), self.started.load(Ordering::Relaxed))
    }

    fn owner(&self) -> Owner {
        let mut comm = [0; 16];
        let (words, _) = comm.as_chunks_mut();
        for (bytes, word) in words.iter_mut().zip(&self.comm) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        Owner {
            pid: self.pid.load(Ordering::Relaxed),
            started: self.started.load(Ordering::Relaxed),
            nonce: self.nonce.load(Ordering::Relaxed),
            comm,
        }
    }
}

// === impl Full ===

impl Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("every slot of the region is owned by a living process")
    }
}

impl Error for Full {}
