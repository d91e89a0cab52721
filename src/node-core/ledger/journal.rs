//! Journal of the ledger: a file that every change is appended to before the call is answered.
//!
//! Appends aren't fsynced: they survive the process, and what a power loss takes is found again in the kubelet's
//! records ([`super::reconcile`]).
//!
//! A journal that is mostly history is rewritten beside the one in use, which takes an fsync and therefore any time that a busy
//! disk likes. What is appended meanwhile goes to the journal in use, and to the new one before that takes its name.

mod format;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::LedgerError;
use super::allocations::{Allocations, Change};
pub use format::{Damage, Replay, ReplayReport, UnknownVersion, replay};
use format::{record, snapshot};

/// Extension of the file that is to replace the journal.
const NEW: &str = "new";
const SOUND: JournalHealth = JournalHealth { is_writable: true, is_rewritten: true };
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
    /// Records appended since a rewrite began, while one is under way.
    since: Option<Vec<u8>>,
    /// Bytes of the first change that couldn't be written since one could.
    unwritten: Option<usize>,
    health: JournalHealth,
}

/// Whether the journal's last writes succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHealth {
    /// The last change could be appended, or none was tried.
    pub is_writable: bool,
    /// The last rewrite succeeded: otherwise the journal grows.
    pub is_rewritten: bool,
}

/// A journal that is written beside the one in use, from what that one led to at one moment. Nothing else waits for it.
#[derive(Debug)]
pub struct Rewrite {
    path: PathBuf,
    allocations: Allocations,
    revision: u64,
}

/// Outcome of a [`Rewrite`]: a file that is complete up to its moment and synced, or why there is none.
#[derive(Debug)]
pub struct Rewritten(Result<(File, u64), LedgerError>);

// === impl Rewrite ===

impl Rewrite {
    /// Writes and syncs the new file, which takes as long as the disk takes.
    pub fn write(&self) -> Rewritten {
        Rewritten(write_new(&self.path, &self.allocations, self.revision))
    }

    /// Syncs the directory, after [`Ledger::finish_rewrite`](super::Ledger::finish_rewrite). A failure is logged: what isn't
    /// synced costs after a power loss what unsynced records cost.
    pub fn sync_directory(&self) {
        sync_directory(&self.path);
    }
}

/// Writes the allocations to a file beside `path`, synced; returns the file and its length.
fn write_new(path: &Path, allocations: &Allocations, revision: u64) -> Result<(File, u64), LedgerError> {
    let new = path.with_extension(NEW);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&new, "remove")(error)),
        _ => {}
    }
    let mut file = OpenOptions::new().append(true).create_new(true).open(&new).map_err(failed(&new, "create"))?;
    let bytes = snapshot(allocations, revision);
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed(&new, "write"))?;
    Ok((file, bytes.len() as u64))
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> LedgerError {
    move |source| LedgerError::Io { path: path.to_owned(), doing, source }
}

fn sync_directory(path: &Path) {
    if let Err(error) = path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all()) {
        tracing::warn!(path = %path.display(), %error, "cannot sync the journal's directory");
    }
}

// === impl Journal ===

impl Journal {
    /// Writes the allocations to a temporary file and renames it to `path`: at any moment one whole journal stands there.
    pub(super) fn create(path: &Path, allocations: &Allocations, revision: u64) -> Result<Self, LedgerError> {
        let (file, len) = write_new(path, allocations, revision)?;
        let journal = Self::put(path, file, len)?;
        // Past this point the old file is gone, and an error would make the caller go on with it.
        sync_directory(path);
        Ok(journal)
    }

    /// Renames the new file to `path`.
    fn put(path: &Path, file: File, len: u64) -> Result<Self, LedgerError> {
        let new = path.with_extension(NEW);
        fs::rename(&new, path).map_err(failed(&new, "rename"))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            len,
            torn: false,
            overgrown: SMALL.max(4 * len),
            since: None,
            unwritten: None,
            health: SOUND,
        })
    }

    /// Keeps the damaged file at `path`, for analysis, beside those that were kept before: `journal.damaged`,
    /// `journal.damaged.1` and so on.
    pub(super) fn keep_damaged(path: &Path) {
        let inode = |path: &Path| fs::symlink_metadata(path).ok().map(|meta| meta.ino());
        let names = ["damaged".to_owned()].into_iter().chain((1u32..).map(|number| format!("damaged.{number}")));
        for kept in names.map(|name| path.with_extension(name)) {
            match fs::hard_link(path, &kept) {
                // The same, where the journal couldn't be rewritten since.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && inode(path) != inode(&kept) => {}
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return tracing::warn!(path = %kept.display(), %error, "cannot keep the damaged journal");
                }
                _ => return,
            }
        }
    }

    /// Goes on with the journal that stands at `path`, after its first `whole` bytes.
    pub(super) fn resume(path: &Path, whole: u64) -> Result<Self, LedgerError> {
        let file = OpenOptions::new().append(true).open(path).map_err(failed(path, "open"))?;
        file.set_len(whole).map_err(failed(path, "open"))?;
        let overgrown = SMALL.max(2 * whole);
        let health = JournalHealth { is_rewritten: false, ..SOUND };
        Ok(Self {
            path: path.to_owned(),
            file,
            len: whole,
            torn: false,
            overgrown,
            since: None,
            unwritten: None,
            health,
        })
    }

    /// Writes changes down, all or none, the first with this revision.
    pub(super) fn append(&mut self, first: u64, changes: &[Change]) -> Result<(), LedgerError> {
        let bytes = (first..).zip(changes).flat_map(|(revision, change)| record(revision, change)).collect::<Vec<u8>>();
        let written = self.write(&bytes).map_err(failed(&self.path, "write"));
        self.health.is_writable = written.is_ok();
        self.unwritten = written.is_err().then(|| self.unwritten.unwrap_or(bytes.len()));
        written?;
        if let Some(since) = &mut self.since {
            since.extend(bytes);
        }
        Ok(())
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

    /// Bytes of the first change that couldn't be written since one could.
    pub(super) fn unwritten(&self) -> Option<usize> {
        self.unwritten
    }

    pub(super) fn health(&self) -> JournalHealth {
        self.health
    }

    /// Whether it is mostly history, and nobody rewrites it yet.
    pub(super) fn is_overgrown(&self) -> bool {
        self.len > self.overgrown && self.since.is_none()
    }

    /// Begins to rewrite the journal from the allocations that it led to. It is appended to meanwhile.
    pub(super) fn begin_rewrite(&mut self, allocations: &Allocations, revision: u64) -> Rewrite {
        self.since = Some(Vec::new());
        Rewrite { path: self.path.clone(), allocations: allocations.clone(), revision }
    }

    /// Adds to the new file what was appended to this one meanwhile, and renames it to this one's name: at any moment one whole
    /// journal stands there. A failure costs disk space only; it is tried again at twice the length.
    pub(super) fn finish_rewrite(&mut self, Rewritten(written): Rewritten) {
        let since = self.since.take().unwrap_or_default();
        let replaced = written.and_then(|(mut file, len)| {
            file.write_all(&since).map_err(failed(&self.path.with_extension(NEW), "write"))?;
            Self::put(&self.path, file, len + since.len() as u64)
        });
        match replaced {
            Ok(journal) => *self = journal,
            Err(error) => {
                tracing::warn!(%error, "cannot rewrite the journal");
                self.overgrown = self.len.saturating_mul(2);
                self.health.is_rewritten = false;
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
