//! Kernels that wait for each other, whatever the process or card they run on, as those that exchange data do.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Most kernels that meet.
pub const RANKS: usize = 64;

/// Meetings of a group that are remembered. Nobody is more than one ahead of another.
const MEETINGS: usize = 4;

/// What stands for the flags in each other's memory: a file per group.
#[repr(C)]
struct Flags([[Arrival; RANKS]; MEETINGS]);

#[repr(C)]
struct Arrival {
    /// Number of the meeting, written last; 0: none yet.
    number: AtomicU64,
    /// [`crate::clock`]'s nanoseconds.
    at: AtomicU64,
}

/// One kernel's part in a meeting.
#[derive(Clone, Copy)]
pub struct Meeting {
    flags: NonNull<Flags>,
    rank: usize,
    ranks: usize,
    number: u64,
}

// SAFETY: all that is mapped are atomics, which any thread may use, and the mapping is never undone.
unsafe impl Send for Meeting {}

// === impl Meeting ===

impl Meeting {
    /// The part of `rank` in the group's meeting of this number, from 1 on in order. Fails if there is no such rank.
    pub fn open(directory: &Path, group: u64, (rank, ranks): (u32, u32), number: u64) -> io::Result<Self> {
        let (rank, ranks) = (rank as usize, ranks as usize);
        if rank >= ranks || ranks > RANKS || number == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o666);
        let file = file.open(directory.join(format!("{group}.group")))?;
        if file.metadata()?.len() == 0 {
            // Processes of other users meet too, whatever our umask.
            file.set_permissions(std::fs::Permissions::from_mode(0o666))?;
            file.set_len(size_of::<Flags>() as u64)?;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is as long as the flags and never shrinks.
        let mapped =
            unsafe { libc::mmap(ptr::null_mut(), size_of::<Flags>(), access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let flags = NonNull::new(mapped.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { flags, rank, ranks, number })
    }

    /// Part of the same rank in another meeting.
    #[must_use]
    pub fn numbered(self, number: u64) -> Self {
        Self { number, ..self }
    }

    /// Says that this kernel has run since a moment.
    pub fn arrive(&self, at: u64) {
        let own = &self.arrivals()[self.rank];
        if own.number.load(Relaxed) != self.number {
            own.at.store(at, Relaxed);
            own.number.store(self.number, Release);
        }
    }

    /// When the last kernel came; `None`: some are missing.
    pub fn met(&self) -> Option<u64> {
        let arrivals = self.arrivals().iter().take(self.ranks);
        let came = |arrival: &Arrival| (arrival.number.load(Acquire) == self.number).then(|| arrival.at.load(Relaxed));
        arrivals.map(came).try_fold(0, |last, at| at.map(|at| at.max(last)))
    }

    fn arrivals(&self) -> &[Arrival; RANKS] {
        // SAFETY: mapped for good, aligned to a page, and made of atomics for which all bytes are valid.
        let flags = unsafe { self.flags.as_ref() };
        &flags.0[usize::try_from(self.number % MEETINGS as u64).unwrap_or(0)]
    }
}
