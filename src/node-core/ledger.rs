//! The ledger: which container of which pod holds which share of which card. The only record of it on the node.
//!
//! Plain and synchronous, without a clock: the owner of the [`Ledger`] serialises access to it. A change is written to the
//! journal first and made in memory after, so that an answer, once given, survives the process; if it can't be written,
//! nothing has changed.

mod allocations;
mod entry;
pub mod journal;
pub mod reconcile;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use divvy_api::ContainerRequest;

use crate::pod::PodRef;
pub use allocations::{Allocations, Change};
pub use entry::{BadNonce, ContainerEntry, Holding, Nonce, Origin, Part, PodEntry};
pub use journal::{Damage, JournalHealth, ReplayReport, Rewrite, Rewritten};
use journal::{Journal, Replay, UnknownVersion};

/// Each opening begins at a multiple of this, on disk before the first answer: more than the changes between two
/// rewrites of the journal, so that the revision grows even if a power loss takes all that came after.
const OPENING: u64 = 1_000_000;

/// The journal's file; others that belong to it have this name with an extension.
const JOURNAL: &str = "journal";

/// Allocations, and the journal that they survive in.
#[derive(Debug)]
pub struct Ledger {
    allocations: Allocations,
    revision: u64,
    journal: Journal,
    /// Locked for as long as the ledger lives: two daemons would give the same card twice.
    _dir: File,
}

/// Why the ledger can't be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Error of the file system.
    #[error(
        "{path}: cannot {doing} the ledger's journal: {source}: stateDir must be a directory that the daemon can write to"
    )]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What was attempted, as a verb.
        doing: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// Another daemon has the ledger open.
    #[error("{dir}: another process keeps its ledger here: stop it first")]
    InUse {
        /// The ledger's directory.
        dir: PathBuf,
    },
    /// Written by a newer build; left untouched.
    #[error("{path}: {source}: run the build that wrote it, or move the file away")]
    Version {
        /// The journal.
        path: PathBuf,
        /// Version that it was written in.
        source: UnknownVersion,
    },
    /// A holding for a container that the pod doesn't have.
    #[error("pod {pod} has no container \"{container}\"")]
    NoContainer {
        /// The pod.
        pod: PodRef,
        /// The name that isn't among its requests.
        container: String,
    },
}

// === impl Ledger ===

impl Ledger {
    /// Opens the ledger kept in `dir`, which is created if it isn't there, and reports what was found.
    pub fn open(dir: &Path) -> Result<(Self, ReplayReport), LedgerError> {
        let lock = lock(dir)?;
        let path = dir.join(JOURNAL);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(|source| LedgerError::Io { path: path.clone(), doing: "read", source })?,
        };
        let replay = journal::replay(&bytes).map_err(|source| LedgerError::Version { path: path.clone(), source })?;
        let Replay { allocations, revision, mut report, whole } = replay;
        let revision = next_opening(revision);
        if !report.damaged.is_empty() {
            Journal::keep_damaged(&path);
        }
        let journal = match Journal::create(&path, &allocations, revision) {
            Ok(journal) => journal,
            // A full disk must not keep the daemon of running pods from starting.
            Err(error) => match Journal::resume(&path, whole) {
                Ok(journal) => {
                    report.not_rewritten = Some(error.to_string());
                    journal
                }
                Err(_also) => return Err(error),
            },
        };
        Ok((Self { allocations, revision, journal, _dir: lock }, report))
    }

    /// Who holds what.
    pub fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// Grows with every change, over restarts too.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Records what a container was allocated, in place of what it may have held: the kubelet asks again when it has lost its
    /// checkpoint. `requests` are those of all the pod's containers, in admission order; what the others hold stays.
    ///
    /// A slot that another pod holds is this pod's from now on, and the other keeps its share without it. Whether the
    /// shares fit is decided before, by placement.
    pub fn allocate(
        &mut self,
        pod: &PodRef,
        requests: &[ContainerRequest],
        container: &str,
        holding: Holding,
    ) -> Result<u64, LedgerError> {
        let held = self.allocations.pod(&pod.uid);
        let holding_of = |name: &str| held.and_then(|entry| entry.container(name)?.holding.clone());
        let entry_of = |request: &ContainerRequest| ContainerEntry {
            request: request.clone(),
            holding: holding_of(&request.name),
        };
        let mut containers: Vec<ContainerEntry> = requests.iter().map(entry_of).collect();
        let Some(given) = containers.iter_mut().find(|entry| entry.request.name == container) else {
            return Err(LedgerError::NoContainer { pod: pod.clone(), container: container.to_owned() });
        };
        given.holding = Some(holding);
        let entry = PodEntry { pod: pod.clone(), containers };
        self.commit(vec![Change::Hold { entry, why: format!("allocated container \"{container}\"") }])
    }

    /// Makes all of these changes, or none, and answers the revision reached. Releases of unknown pods change nothing.
    pub fn apply(&mut self, mut changes: Vec<Change>) -> Result<u64, LedgerError> {
        changes.retain(|change| matches!(change, Change::Hold { .. }) || self.allocations.pod(change.uid()).is_some());
        if !changes.is_empty() {
            self.commit(changes)?;
        }
        Ok(self.revision)
    }

    /// Whether the journal's last writes succeeded.
    pub fn journal_health(&self) -> JournalHealth {
        self.journal.health()
    }

    /// Whether a change could be written down. If the last one couldn't be, one at least as long as the first that
    /// couldn't is written, which changes nothing; otherwise nothing is.
    pub fn try_writing(&mut self) -> Result<(), LedgerError> {
        let Some(length) = self.journal.unwritten() else { return Ok(()) };
        let nobody = PodRef { uid: String::new(), namespace: String::new(), name: String::new() };
        self.commit(vec![Change::Release { pod: nobody, why: "-".repeat(length) }]).map(drop)
    }

    /// Whether the journal is mostly history, so that it should be rewritten.
    pub fn is_journal_overgrown(&self) -> bool {
        self.journal.is_overgrown()
    }

    /// Begins to rewrite the journal, which goes on being written; `None` where that isn't worth it or is under way.
    /// [`Rewrite::write`] takes an fsync, without this ledger.
    pub fn begin_rewrite(&mut self) -> Option<Rewrite> {
        self.is_journal_overgrown().then(|| self.journal.begin_rewrite(&self.allocations, self.revision))
    }

    /// Ends what [`Self::begin_rewrite`] began. A failure is logged, and the journal stays as it was.
    pub fn finish_rewrite(&mut self, rewritten: Rewritten) {
        self.journal.finish_rewrite(rewritten);
    }

    fn commit(&mut self, changes: Vec<Change>) -> Result<u64, LedgerError> {
        let first = self.revision + 1;
        self.journal.append(first, &changes)?;
        for (revision, change) in (first..).zip(changes) {
            self.allocations.apply(change, revision);
            self.revision = revision;
        }
        Ok(self.revision)
    }
}

/// Above all revisions that the opening which reached this one can have given.
fn next_opening(revision: u64) -> u64 {
    (revision / OPENING + 1) * OPENING
}

/// Locks a ledger's directory, as [`Ledger::open`] does. The lock ends with the file, and with the process, however that ends.
pub fn lock(dir: &Path) -> Result<File, LedgerError> {
    let failed = |source| LedgerError::Io { path: dir.to_owned(), doing: "open the directory of", source };
    fs::create_dir_all(dir).map_err(failed)?;
    let file = File::open(dir).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LedgerError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Whether a ledger keeps a file of this name in its directory.
#[must_use]
pub fn is_journal(name: &str) -> bool {
    name.strip_prefix(JOURNAL).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
pub(crate) mod tests;
