//! Journal of the ledger: a file that every change is appended to before the call is answered.
//!
//! Appends aren't fsynced: they survive the process, and what a power loss takes is found again in the kubelet's
//! records ([`super::reconcile`]).

mod format;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::LedgerError;
use super::allocations::{Allocations, Change};
pub use format::{Damage, Replay, ReplayReport, UnknownVersion, replay};
use format::{record, snapshot};

/// Below this many bytes a journal isn't worth rewriting.
const SMALL: u64 = 64 << 10;

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes of whole records.
    len: u64,
    /// Whether a failed write may have left something behind them.
    torn: bool,
    /// Length at which it should be rewritten.
    overgrown: u64,
}

// === impl Journal ===

impl Journal {
    /// Writes the allocations to a temporary file and renames it to `path`: at any moment one whole journal stands there.
    pub(super) fn create(path: &Path, allocations: &Allocations, revision: u64) -> Result<Self, LedgerError> {
        let new = path.with_extension("new");
        let failed = |doing| move |source| LedgerError::Io { path: path.with_extension("new"), doing, source };
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
            _ => {}
        }
        let mut file = OpenOptions::new().append(true).create_new(true).open(&new).map_err(failed("create"))?;
        let bytes = snapshot(allocations, revision);
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed("write"))?;
        fs::rename(&new, path).map_err(failed("rename"))?;
        // Past this point the old file is gone, and an error would make the caller go on with it. What isn't synced
        // costs after a power loss what unsynced records cost.
        if let Err(error) = path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all()) {
            tracing::warn!(path = %path.display(), %error, "cannot sync the journal's directory");
        }
        let len = bytes.len() as u64;
        Ok(Self { path: path.to_owned(), file, len, torn: false, overgrown: SMALL.max(4 * len) })
    }

    /// Keeps a copy of the damaged file at `path`, for analysis.
    pub(super) fn keep_damaged(path: &Path) {
        let kept = path.with_extension("damaged");
        let linked = match fs::hard_link(path, &kept) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&kept).and_then(|()| fs::hard_link(path, &kept))
            }
            linked => linked,
        };
        if let Err(error) = linked {
            tracing::warn!(path = %kept.display(), %error, "cannot keep the damaged journal");
        }
    }

    /// Goes on with the journal that stands at `path`, after its first `whole` bytes.
    pub(super) fn resume(path: &Path, whole: u64) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError::Io { path: path.to_owned(), doing: "open", source };
        let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        file.set_len(whole).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file, len: whole, torn: false, overgrown: SMALL.max(2 * whole) })
    }

    /// Writes changes down, all or none, the first with this revision.
    pub(super) fn append(&mut self, first: u64, changes: &[Change]) -> Result<(), LedgerError> {
        let bytes = (first..).zip(changes).flat_map(|(revision, change)| record(revision, change)).collect::<Vec<u8>>();
        self.write(&bytes).map_err(|source| LedgerError::Io { path: self.path.clone(), doing: "write", source })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.len)?;
        }
        let written = self.file.write_all(bytes);
        match written {
            Ok(()) => (self.torn, self.len) = (false, self.len + bytes.len() as u64),
            Err(_) => self.torn = self.file.set_len(self.len).is_err(),
        }
        written
    }

    /// Whether it is mostly history.
    pub(super) fn is_overgrown(&self) -> bool {
        self.len > self.overgrown
    }

    /// Rewrites the journal from the allocations that it led to. A failure costs disk space only; it is tried again at twice
    /// the length.
    pub(super) fn rewrite(&mut self, allocations: &Allocations, revision: u64) {
        match Self::create(&self.path, allocations, revision) {
            Ok(journal) => *self = journal,
            Err(error) => {
                tracing::warn!(%error, "cannot rewrite the journal");
                self.overgrown = self.len.saturating_mul(2);
            }
        }
    }
}

#[cfg(test)]
impl Journal {
    /// Puts a full disk under it; answers what [`Self::mend_writes`] wants back.
    pub(super) fn break_writes(&mut self) -> File {
        let full = OpenOptions::new().append(true).open("/dev/full").expect("Linux has one");
        std::mem::replace(&mut self.file, full)
    }

    pub(super) fn mend_writes(&mut self, file: File) {
        self.file = file;
    }
}
