//! The directories of containers: `<runDir>/containers/<nonce>/{limits,region}`.
//!
//! Those of an ended container are renamed to `<runDir>/dead/<nonce>`, whatever is in them, and removed there.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::{fs, io};

use divvy_api::container::{OVERHEAD_FILE, REGION_FILE};
use divvy_node_core::ports::{Mount, SetupError};

use tracing::warn;
use uuid::Uuid;

use super::files::{self, state};
use super::limits::{self, Limits};
use super::{mounts, removal};
use divvy_node_core::ledger::Nonce;

/// Name of the file in the limits directory.
pub const LIMITS_FILE: &str = "limits";

/// Directories of all containers.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    /// Open to the daemon and the container runtime alone, so that no tenant reaches another's directories.
    root: PathBuf,
    /// Directories of ended containers, which wait for their removal.
    dead: PathBuf,
    /// Whether each region is a file system of its own, with a size.
    bounded: bool,
    /// Thread that removes what is in `dead`, once there is one.
    remover: Arc<OnceLock<Thread>>,
}

/// Directories of one container.
#[derive(Debug)]
pub struct ContainerDirectories {
    root: PathBuf,
    is_new: bool,
}

/// Bytes of the limits of a container with one share, about.
const USUAL_LIMITS: usize = 512;
const CONTAINERS: &str = "containers";
const LIMITS: &str = "limits";
pub(super) const REGION: &str = "region";
const DEAD: &str = "dead";

/// Directory that contains those of the container with this nonce.
pub(crate) fn container_root(run_dir: &Path, nonce: &OsStr) -> PathBuf {
    run_dir.join(CONTAINERS).join(nonce)
}

/// Path of the accounting region of the container with this nonce.
pub(crate) fn region_file(run_dir: &Path, nonce: Nonce) -> PathBuf {
    container_root(run_dir, nonce.to_string().as_ref()).join(REGION).join(REGION_FILE)
}

/// File in which the container with this nonce reads what the driver charges it beyond its accounting region.
pub(crate) fn overhead_file(run_dir: &Path, nonce: Nonce) -> PathBuf {
    run_dir.join(CONTAINERS).join(nonce.to_string()).join(LIMITS).join(OVERHEAD_FILE)
}

// === impl Directories ===

impl Directories {
    pub(super) fn new(run_dir: &Path) -> Self {
        Self { root: run_dir.join(CONTAINERS), dead: run_dir.join(DEAD), bounded: false, remover: Arc::default() }
    }

    /// The directories that hold those of live and of dead containers.
    pub(super) fn roots(&self) -> [PathBuf; 2] {
        [self.root.clone(), self.dead.clone()]
    }

    /// Whether each region is a file system of its own, with a size.
    pub(super) fn are_bounded(&self) -> bool {
        self.bounded
    }

    /// Gives each new region a file system of its own from now on, or says why that isn't possible.
    pub(super) fn bound(&mut self) -> Result<(), String> {
        let above = self.above();
        if let Err(error) = fs::create_dir_all(above) {
            return Err(format!("making directory {}: {error}", above.display()));
        }
        mounts::problem(above).map_or(Ok(()), Err)?;
        self.bounded = true;
        Ok(())
    }

    fn above(&self) -> &Path {
        self.root.parent().unwrap_or(&self.root)
    }

    fn path(&self, nonce: Nonce) -> PathBuf {
        self.root.join(nonce.to_string())
    }

    /// Whether the container has directories.
    pub(super) fn exist(&self, nonce: Nonce) -> bool {
        self.path(nonce).is_dir()
    }

    /// Makes those directories of the container that are missing, with room for a region of so many cards.
    pub(super) fn make(&self, nonce: Nonce, cards: usize) -> Result<ContainerDirectories, SetupError> {
        let root = self.path(nonce);
        let container = ContainerDirectories { is_new: self.make_root(&root)?, root };
        make(&container.limits(), 0o755)?;
        let region = container.region();
        // The processes of a pod run as any user, and none may remove another's file.
        make(&region, 0o1777)?;
        if self.bounded {
            mounts::bound(&region, cards).map_err(state("mounting a file system on", &region))?;
        }
        Ok(container)
    }

    /// Makes the directories of a container that isn't there, with limits of the usual length, and puts them away.
    pub(super) fn try_making(&self) -> Result<(), SetupError> {
        let nonce = Nonce::random();
        let tried = self.make(nonce, 1).and_then(|container| {
            let file = container.limits().join(LIMITS_FILE);
            files::replace(&file, "-".repeat(USUAL_LIMITS)).map_err(state("writing limits", &file))
        });
        self.put_away(nonce);
        self.wake_removal();
        tried
    }

    /// Makes the directory that contains a container's two, and the one of all containers if it is missing.
    fn make_root(&self, path: &Path) -> Result<bool, SetupError> {
        match files::make_directory(path, 0o755) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            made => return made.map_err(state("making directory", path)),
        }
        let above = self.above();
        fs::create_dir_all(above).map_err(state("making directory", above))?;
        make(&self.root, 0o700)?;
        // Now, while there is an inode for it.
        make(&self.dead, 0o700)?;
        make(path, 0o755)
    }

    /// Renames the container's directories, if there are any, to where they are removed; a failure is logged. Whether none are
    /// left. However much is in them, this takes the time of a rename.
    pub(super) fn put_away(&self, nonce: Nonce) -> bool {
        let path = self.path(nonce);
        let renamed = self.rename_dead(&path, nonce).map_err(state("renaming directory", &path));
        renamed.inspect_err(|error| warn!(%error, "failed to remove the directory of a terminated container")).is_ok()
    }

    fn rename_dead(&self, path: &Path, nonce: Nonce) -> io::Result<()> {
        if !fs::exists(path)? {
            return Ok(());
        }
        files::make_directory(&self.dead, 0o700)?;
        match fs::rename(path, self.dead.join(nonce.to_string())) {
            // A runtime made the directories again, and the first ones are still being removed.
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {
                fs::rename(path, self.dead.join(Uuid::new_v4().simple().to_string()))
            }
            renamed => renamed,
        }
    }

    /// Starts the thread that removes directories that were put away, by this process or an earlier one. `removed` is called
    /// on it whenever some are gone.
    pub(super) fn start_removal(&self, removed: impl Fn() + Send + 'static) -> io::Result<()> {
        let dead = self.dead.clone();
        let thread = thread::Builder::new().name("removal".to_owned()).spawn(move || removal::run(&dead, removed))?;
        self.remover.get_or_init(|| thread.thread().clone());
        Ok(())
    }

    /// Wakes the thread that removes directories that were put away.
    pub(super) fn wake_removal(&self) {
        if let Some(thread) = self.remover.get() {
            thread.unpark();
        }
    }

    /// Removes directories that were put away, on this thread.
    pub(super) fn remove_dead(&self) -> io::Result<()> {
        removal::empty(&self.dead)
    }

    /// The nonce and the limits of the container, found by the limits files; no limits, where a newer build wrote them.
    pub(super) fn find(&self, pod_uid: &str, container: &str) -> Option<(Nonce, Option<Limits>)> {
        nonces(fs::read_dir(&self.root).ok()?).find_map(|nonce| {
            let text = self.read_limits(nonce)?;
            let limits = limits::read(&text).ok();
            let is_wanted = match &limits {
                Some(limits) => limits.pod_uid == pod_uid && limits.container == container,
                None => has_line(&text, "pod", pod_uid) && has_line(&text, "container", container),
            };
            is_wanted.then_some((nonce, limits))
        })
    }

    /// Containers other than the `live` ones whose directories may be in use: their limits can't be read, or are those of
    /// one of these pods, by UID.
    pub(super) fn in_doubt(&self, live: &HashSet<Nonce>, unmatched: &HashSet<String>) -> HashSet<Nonce> {
        let is_in_doubt = |nonce: &Nonce| {
            let limits = self.read_limits(*nonce).map(|text| limits::read(&text));
            limits.is_some_and(|limits| limits.map_or(true, |limits| unmatched.contains(&limits.pod_uid)))
        };
        let dead = fs::read_dir(&self.root).into_iter().flat_map(nonces).filter(|nonce| !live.contains(nonce));
        dead.filter(is_in_doubt).collect()
    }

    /// Whether the container has limits that this build can't read.
    pub(super) fn are_of_newer_build(&self, nonce: Nonce) -> bool {
        self.read_limits(nonce).is_some_and(|text| limits::read(&text).is_err())
    }

    /// Text of the limits; `None` where none were written.
    fn read_limits(&self, nonce: Nonce) -> Option<String> {
        let bytes = fs::read(self.path(nonce).join(LIMITS).join(LIMITS_FILE)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Puts the directories of all containers but the `live` ones away, and returns whose.
    pub(super) fn sweep(&self, live: &HashSet<Nonce>) -> Result<Vec<Nonce>, SetupError> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(state("reading directory", &self.root))?,
        };
        let mut dead: Vec<Nonce> = nonces(entries).filter(|nonce| !live.contains(nonce)).collect();
        dead.sort_by_cached_key(Nonce::to_string);
        dead.retain(|nonce| self.put_away(*nonce));
        Ok(dead)
    }
}

// === impl ContainerDirectories ===

impl ContainerDirectories {
    /// Directory that contains both; not mounted into the container.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Directory that the container reads.
    pub fn limits(&self) -> PathBuf {
        self.root.join(LIMITS)
    }

    /// Directory that the container writes, with any content.
    pub fn region(&self) -> PathBuf {
        self.root.join(REGION)
    }

    /// Whether the directories were just made and are empty.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Writes the limits file, unless it has this content.
    pub(super) fn write(&self, text: &str) -> Result<(), SetupError> {
        let file = self.limits().join(LIMITS_FILE);
        if fs::read_to_string(&file).is_ok_and(|written| written == text) {
            return Ok(());
        }
        files::replace(&file, text).map_err(state("writing limits", &file))
    }
}

/// Nonces that name the entries; files with other names are left alone.
fn nonces(entries: fs::ReadDir) -> impl Iterator<Item = Nonce> {
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn make(path: &Path, mode: u32) -> Result<bool, SetupError> {
    files::make_directory(path, mode).map_err(state("making directory", path))
}

/// A read-only mount of a host path.
pub(crate) fn mount(container_path: &str, host_path: &Path) -> Mount {
    Mount { container_path: container_path.to_owned(), host_path: host_path.display().to_string(), read_only: true }
}

/// Whether a limits file of any build has this value for a key.
fn has_line(text: &str, key: &str, value: &str) -> bool {
    text.lines().any(|line| line.split(' ').take(2).eq([key, value]))
}
