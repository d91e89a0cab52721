//! What all processes on a stand-in card share: its memory and its time, in one mapped file per card.
//!
//! ```text
//! process ──demand──▶ demanded ┐                        ┌──▶ spans: when which of its work ran
//! process ──demand──▶ demanded ┴──▶ advance to "now" ───┴──▶ spans
//! ```
//!
//! Nobody runs the card. Whoever looks at it takes its lock and plays its time forward to this moment: the holder of the
//! turn is served until its slice ends or its work runs out, then the next process with work. Nothing can be demanded
//! without that, so the past is settled when it is written and never depends on when a thread woke up.
//!
//! Clients of the multi-process service take no turns: each has the card beside all others.
//!
//! A process's work is one line of nanoseconds: `demanded` is how far it wants to get, and a [`Span`] says from when on
//! which part of it ran. So the others need to know nothing of its kernels.
//!
//! The lock, and a second one that each process holds for life, are robust mutexes: the kernel opens them when their holder
//! dies, by whatever signal. What a dead process held of the card is given back by whoever sees it first.
#![allow(unsafe_code, reason = "memory that processes share")]

mod layout;
mod library;
mod meeting;
mod mode;
mod mutex;
#[cfg(test)]
mod tests;
mod turn;
mod usage;

use std::fs::Permissions;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use layout::{Layout, MAGIC};
pub use library::own_path;
pub use meeting::{Meeting, RANKS};
pub use mode::{EXCLUSIVE_PROCESS, compute_mode, set_compute_mode};
pub use turn::{FOREVER, Member, Span};
pub use usage::Usage;

/// A card's shared state, mapped until the process ends.
#[derive(Clone, Copy)]
pub struct Card {
    layout: NonNull<Layout>,
}

// SAFETY: all that is mapped are atomics and mutexes, which any thread may use, and the mapping is never undone.
unsafe impl Send for Card {}
// SAFETY: as above.
unsafe impl Sync for Card {}

/// No room on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine share.
pub fn clock() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes. The clock exists on every Linux, so the call can't fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Where the state of a card lies.
pub fn path(directory: &Path, uuid: &str) -> PathBuf {
    directory.join(format!("{uuid}.card"))
}

// === impl Card ===

impl Card {
    /// The state of the card `uuid` in `directory`, made if there is none yet. The first to come decides how long a slice
    /// of the card's time is.
    pub fn create(directory: &Path, uuid: &str, slice: Duration) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o666);
        let file = file.open(path(directory, uuid))?;
        let lock = |operation| {
            // SAFETY: the descriptor is open.
            if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        };
        lock(libc::LOCK_EX)?;
        let card = Self::prepare(&file, slice);
        // The mapping would hold it as long as the process lives.
        lock(libc::LOCK_UN)?;
        card
    }

    /// Makes the state in a file that nobody else looks at now, unless it is made.
    fn prepare(file: &File, slice: Duration) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            // Processes of other users are on the card too, whatever our umask.
            file.set_permissions(Permissions::from_mode(0o666))?;
            file.set_len(size_of::<Layout>() as u64)?;
        }
        let card = Self::map(file)?;
        let layout = card.layout();
        if layout.magic.load(Acquire) != MAGIC {
            layout.initialise(u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX).max(1))?;
            layout.magic.store(MAGIC, Release);
        }
        Ok(card)
    }

    /// The state that the processes on the card have made, for a look from outside.
    pub fn open(directory: &Path, uuid: &str) -> io::Result<Self> {
        let card = Self::map(&OpenOptions::new().read(true).write(true).open(path(directory, uuid))?)?;
        if card.layout().magic.load(Acquire) == MAGIC {
            Ok(card)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("{uuid}: not the state of a stand-in card")))
        }
    }

    fn map(file: &File) -> io::Result<Self> {
        let size = size_of::<Layout>();
        if file.metadata()?.len() != size as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not the state of a stand-in card"));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is as long as the layout and never shrinks.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), size, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let layout = NonNull::new(mapped.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { layout })
    }

    fn layout(&self) -> &Layout {
        // SAFETY: mapped for good, aligned to a page, and made of atomics for which all bytes are valid.
        unsafe { self.layout.as_ref() }
    }

    /// Bytes that live processes hold.
    pub fn memory_used(&self) -> u64 {
        let layout = self.layout();
        let _locked = layout.lock();
        layout.memory_used()
    }

    /// How long a slice of the card's time is.
    pub fn slice(&self) -> Duration {
        Duration::from_nanos(self.layout().slice.load(Relaxed))
    }
}
