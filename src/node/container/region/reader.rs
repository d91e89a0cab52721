//! Reader of one container's accounting region, a file that its tenant can change in any way.
//!
//! It is read by `pread`, never mapped: a process that reads a map of a file that is cut short is killed, and one that reads while
//! the tenant punches a hole waits for as long as the tenant likes. The locks are those of bytes, as libdivvy takes them; those of
//! the daemon belong to the open file (OFD). Classic ones belong to the process, which loses them whenever it closes another
//! descriptor of the region: the usage watcher, the clock and [`ensure`](super::ensure) each have one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use divvy_region::layout::{self, InvalidRegion, LINE};
use divvy_region::snapshot::{Head, Snapshot};
use nix::fcntl::{FcntlArg, fcntl};

use crate::container::files;

/// An open region, checked when it was opened.
#[derive(Debug)]
pub(crate) struct RegionReader {
    pub(super) file: File,
    /// Device and inode.
    place: (u64, u64),
    cards: usize,
}

/// State of a slot's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Not locked.
    Free,
    /// Locked by a live process: its PID on the host, unless it has none in this PID namespace.
    Held(Option<u32>),
}

/// Why a region can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegionError {
    /// Opening or reading the file failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a region, or was overwritten.
    #[error(transparent)]
    Invalid(#[from] InvalidRegion),
    /// A region of another container.
    #[error("it is for another number of GPUs than the container's {0}")]
    Cards(usize),
}

// === impl RegionReader ===

impl RegionReader {
    /// Opens the region at `path`, which must be for `cards` cards; `None`: it is the file that `known` has open.
    pub(crate) fn open(path: &Path, cards: usize, known: Option<&Self>) -> Result<Option<Self>, RegionError> {
        let found = fs::symlink_metadata(path)?;
        if known.is_some_and(|known| known.place == (found.dev(), found.ino())) {
            return Ok(None);
        }
        let (file, opened) = files::open_tenants(path, OpenOptions::new().read(true).write(true))?;
        let reader = Self { file, place: (opened.dev(), opened.ino()), cards };
        reader.check_length()?;
        reader.head()?;
        Ok(Some(reader))
    }

    /// Inode number, which differs from that of the container's other regions.
    pub(crate) fn inode(&self) -> u64 {
        self.place.1
    }

    /// Reads the header. The file may have become shorter since: what is cut off can't be read.
    pub(crate) fn head(&self) -> Result<Head, RegionError> {
        let mut line = [0; LINE];
        self.file.read_exact_at(&mut line, 0)?;
        match Head::read(&line, layout::size(self.cards)) {
            Ok(head) if head.cards == self.cards => Ok(head),
            // The file is long enough for these cards, so it is the header that wants more.
            Ok(_) | Err(InvalidRegion::Short { .. }) => Err(RegionError::Cards(self.cards)),
            Err(invalid) => Err(invalid.into()),
        }
    }

    /// Reads what slots from `first` on use of a card, one line each.
    pub(crate) fn read_uses(&self, card: usize, first: usize, lines: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(lines, layout::use_bytes(self.cards, card, first).end as u64)
    }

    /// Reads what is in use of the region into `buffer`, whose rest is left as it is.
    pub(crate) fn read(&self, buffer: &mut Vec<u8>) -> Result<(), RegionError> {
        self.check_length()?;
        let high = self.head()?.high;
        let cards = self.cards;
        buffer.resize(layout::size(cards), 0);
        let heads = LINE * (1 + cards);
        self.file.read_exact_at(&mut buffer[..heads], 0)?;
        if high > 0 {
            let slots = heads..layout::slot_bytes(cards, high - 1).end;
            for range in (0..cards).map(|card| layout::use_bytes(cards, card, high)).chain([slots]) {
                let offset = range.start as u64;
                self.file.read_exact_at(&mut buffer[range], offset)?;
            }
        }
        Ok(())
    }

    fn check_length(&self) -> Result<(), RegionError> {
        if !(1..=layout::CARDS).contains(&self.cards) {
            return Err(RegionError::Cards(self.cards));
        }
        let length = self.file.metadata()?.len();
        let needed = layout::size(self.cards);
        if length < needed as u64 {
            return Err(InvalidRegion::Short { length: usize::try_from(length).unwrap_or(usize::MAX), needed }.into());
        }
        Ok(())
    }

    /// Returns the state of a slot's lock.
    pub(crate) fn lock_of(&self, slot: usize) -> io::Result<Lock> {
        let mut lock = byte(libc::F_WRLCK, slot);
        fcntl(&self.file, FcntlArg::F_GETLK(&mut lock))?;
        if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
            return Ok(Lock::Free);
        }
        Ok(Lock::Held(u32::try_from(lock.l_pid).ok().filter(|pid| *pid != 0)))
    }

    /// Frees a slot whose process is dead, as `region` was read, and says whether it did: another process may be about to,
    /// or a new owner may be there.
    pub(crate) fn free(&self, region: &[u8], slot: usize) -> Result<bool, RegionError> {
        if !self.try_lock(slot)? {
            return Ok(false);
        }
        let freed = self.erase(region, slot);
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&byte(libc::F_UNLCK, slot))).map_err(io::Error::from)?;
        freed
    }

    /// Takes a slot's lock, without waiting; false if a process of the container has it.
    pub(crate) fn try_lock(&self, slot: usize) -> io::Result<bool> {
        match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&byte(libc::F_WRLCK, slot))) {
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
            locked => Ok(locked.map(|_| true)?),
        }
    }

    /// Compares the slot with `region`, now that nobody changes it, and overwrites it with zeros.
    fn erase(&self, region: &[u8], slot: usize) -> Result<bool, RegionError> {
        let snapshot = Snapshot::new(region)?;
        let at = layout::slot_bytes(snapshot.cards(), slot);
        let mut now = [0; LINE];
        self.file.read_exact_at(&mut now, at.start as u64)?;
        if region.get(at) != Some(&now) {
            return Ok(false);
        }
        for range in snapshot.erasure(slot) {
            self.file.write_all_at(&[0; LINE], range.start as u64)?;
        }
        Ok(true)
    }
}

/// The lock of one slot: the byte at its number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "small constants, and slots below 1024"
)]
fn byte(kind: libc::c_int, slot: usize) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: slot as libc::off_t,
        l_len: 1,
        l_pid: 0,
    }
}
