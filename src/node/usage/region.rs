//! One container's region, as a file that its tenant can do anything to.
//!
//! It is opened once and kept. Nothing is mapped, for who looks into a file that is cut short is ended. The locks are those of
//! bytes, as the library takes them; our own belong to the open file. Classic ones belong to the process, and it would lose
//! them whenever it closes another descriptor of the region, as the clock and the tier do.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use divvy_region::layout::{self, InvalidRegion, LINE};
use divvy_region::snapshot::Snapshot;
use nix::fcntl::{FcntlArg, fcntl};

use crate::container::files;

/// An open region.
#[derive(Debug)]
pub(super) struct RegionFile {
    file: File,
    /// Device and inode.
    place: (u64, u64),
}

/// Who has a slot's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    /// Nobody.
    Free,
    /// A process that lives; its number on the host, unless it has none in our PID namespace.
    Held(Option<u32>),
}

/// Why a region can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// It can't be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else, or was overwritten.
    #[error(transparent)]
    InvalidRegion(#[from] InvalidRegion),
    /// It is none of this container's.
    #[error("it is for another number of cards than the {0} that the container holds")]
    Cards(usize),
}

// === impl RegionFile ===

impl RegionFile {
    /// The file at `path`, if one is there other than `known`.
    pub(super) fn open(path: &Path, known: Option<&Self>) -> io::Result<Option<Self>> {
        let there = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            there => there?,
        };
        if known.is_some_and(|known| known.place == (there.dev(), there.ino())) {
            return Ok(None);
        }
        let (file, opened) = files::open_tenants(path, OpenOptions::new().read(true).write(true))?;
        Ok(Some(Self { file, place: (opened.dev(), opened.ino()) }))
    }

    /// Tells it from the container's other regions.
    pub(super) fn number(&self) -> u64 {
        self.place.1
    }

    /// Reads what is in use of a region for `cards` cards into `buffer`, whose rest is left as it is.
    pub(super) fn read(&self, cards: usize, buffer: &mut Vec<u8>) -> Result<(), Unreadable> {
        if !(1..=layout::CARDS).contains(&cards) {
            return Err(Unreadable::Cards(cards));
        }
        let (length, needed) = (self.file.metadata()?.len(), layout::size(cards));
        if length < needed as u64 {
            return Err(InvalidRegion::Short { length: usize::try_from(length).unwrap_or(usize::MAX), needed }.into());
        }
        buffer.resize(needed, 0);
        let heads = LINE * (1 + cards);
        self.file.read_exact_at(&mut buffer[..heads], 0)?;
        let high = match Snapshot::new(buffer) {
            Ok(snapshot) if snapshot.cards() == cards => snapshot.high(),
            // The file is long enough for these cards, so it is the header that wants more.
            Ok(_) | Err(InvalidRegion::Short { .. }) => return Err(Unreadable::Cards(cards)),
            Err(unfit) => return Err(unfit.into()),
        };
        if high > 0 {
            let slots = heads..layout::slot_bytes(cards, high - 1).end;
            for range in (0..cards).map(|card| layout::use_bytes(cards, card, high)).chain([slots]) {
                let offset = range.start as u64;
                self.file.read_exact_at(&mut buffer[range], offset)?;
            }
        }
        Ok(())
    }

    /// Who has the lock of a slot.
    pub(super) fn lock_of(&self, slot: usize) -> io::Result<Lock> {
        let mut lock = byte(libc::F_WRLCK, slot);
        fcntl(&self.file, FcntlArg::F_GETLK(&mut lock))?;
        if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
            return Ok(Lock::Free);
        }
        Ok(Lock::Held(u32::try_from(lock.l_pid).ok().filter(|pid| *pid != 0)))
    }

    /// Frees a slot whose process is dead, as `region` was read, and says whether it did: another process may be about to,
    /// or a new owner may be there.
    pub(super) fn free(&self, region: &[u8], slot: usize) -> Result<bool, Unreadable> {
        if !self.try_lock(slot)? {
            return Ok(false);
        }
        let freed = self.erase(region, slot);
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&byte(libc::F_UNLCK, slot))).map_err(io::Error::from)?;
        freed
    }

    /// Takes a slot's lock, without waiting; false if a process of the container has it.
    pub(super) fn try_lock(&self, slot: usize) -> io::Result<bool> {
        match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&byte(libc::F_WRLCK, slot))) {
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
            locked => Ok(locked.map(|_| true)?),
        }
    }

    /// Looks at the slot again, now that nobody changes it, and overwrites it with zeros.
    fn erase(&self, region: &[u8], slot: usize) -> Result<bool, Unreadable> {
        let snapshot = Snapshot::new(region)?;
        let (at, mut now) = (layout::slot_bytes(snapshot.cards(), slot), [0; LINE]);
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
