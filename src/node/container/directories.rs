//! The directories of containers: `<runDir>/containers/<nonce>/{limits,region}`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use divvy_api::container::{OVERHEAD_FILE, REGION_FILE};
use divvy_node_core::ports::{Mount, SetupError};

use tracing::warn;

use super::files::{self, state};
use super::limits::Limits;
use divvy_node_core::ledger::Nonce;

/// Name of the file in the limits directory.
pub const LIMITS_FILE: &str = "limits";

/// Directories of all containers.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    /// Open to the daemon and the container runtime alone, so that no tenant reaches another's directories.
    root: PathBuf,
}

/// Directories of one container.
#[derive(Debug)]
pub struct Container {
    root: PathBuf,
    is_new: bool,
}

const CONTAINERS: &str = "containers";
const LIMITS: &str = "limits";
const REGION: &str = "region";

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
        Self { root: run_dir.join(CONTAINERS) }
    }

    fn path(&self, nonce: Nonce) -> PathBuf {
        self.root.join(nonce.to_string())
    }

    /// Whether the container has directories.
    pub(super) fn exist(&self, nonce: Nonce) -> bool {
        self.path(nonce).is_dir()
    }

    /// Makes those directories of the container that are missing.
    pub(super) fn make(&self, nonce: Nonce) -> Result<Container, SetupError> {
        let root = self.path(nonce);
        let container = Container { is_new: self.make_root(&root)?, root };
        make(&container.limits(), 0o755)?;
        // The processes of a pod run as any user, and none may remove another's file.
        make(&container.region(), 0o1777)?;
        Ok(container)
    }

    /// Makes the directory that contains a container's two, and the one of all containers if it is missing.
    fn make_root(&self, path: &Path) -> Result<bool, SetupError> {
        match files::make_directory(path, 0o755) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            made => return made.map_err(state("making directory", path)),
        }
        let above = self.root.parent().unwrap_or(&self.root);
        fs::create_dir_all(above).map_err(state("making directory", above))?;
        make(&self.root, 0o700)?;
        make(path, 0o755)
    }

    /// Removes the container's directories, if there are any; a failure is logged. Whether none are left.
    pub(super) fn remove(&self, nonce: Nonce) -> bool {
        let path = self.path(nonce);
        let removed = fs::remove_dir_all(&path).or_else(files::not_there);
        let removed = removed.map_err(state("removing directory", &path));
        removed.inspect_err(|error| warn!(%error, "failed to remove the directory of a terminated container")).is_ok()
    }

    /// The nonce and the limits of the container, found by the limits files.
    pub(super) fn find(&self, pod_uid: &str, container: &str) -> Option<(Nonce, Limits)> {
        let mut written = nonces(fs::read_dir(&self.root).ok()?).filter_map(|nonce| {
            let limits = fs::read_to_string(self.path(nonce).join(LIMITS).join(LIMITS_FILE));
            Some((nonce, limits.ok()?.parse::<Limits>().ok()?))
        });
        written.find(|(_, limits)| limits.pod_uid == pod_uid && limits.container == container)
    }

    /// Removes the directories of all containers but the `live` ones, and returns which it removed.
    pub(super) fn sweep(&self, live: &HashSet<Nonce>) -> Result<Vec<Nonce>, SetupError> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(state("reading directory", &self.root))?,
        };
        let mut dead: Vec<Nonce> = nonces(entries).filter(|nonce| !live.contains(nonce)).collect();
        dead.sort_by_cached_key(Nonce::to_string);
        dead.retain(|nonce| self.remove(*nonce));
        Ok(dead)
    }
}

// === impl Container ===

impl Container {
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
    pub(super) fn write(&self, limits: &Limits) -> Result<(), SetupError> {
        let (file, text) = (self.limits().join(LIMITS_FILE), limits.to_string());
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
