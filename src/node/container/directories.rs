//! The directories of containers: `<runDir>/containers/<nonce>/{limits,region}`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use divvy_api::container::{OVERHEAD_FILE, REGION_FILE};
use divvy_proto::deviceplugin::Mount;

use super::error::{ContainerError, state};
use super::files;
use super::limits::Limits;
use divvy_node_core::ledger::Nonce;

/// Name of the file in the limits directory.
pub const LIMITS_FILE: &str = "limits";

/// All of them.
#[derive(Debug)]
pub(super) struct Directories {
    /// One tenant's are not another's: only the daemon and the runtime get through here.
    root: PathBuf,
}

/// One container's.
#[derive(Debug)]
pub struct Container {
    root: PathBuf,
    is_new: bool,
}

const CONTAINERS: &str = "containers";
const LIMITS: &str = "limits";
const REGION: &str = "region";

/// The directory around those of the container with this nonce.
pub(crate) fn container_root(run_dir: &Path, nonce: &OsStr) -> PathBuf {
    run_dir.join(CONTAINERS).join(nonce)
}

/// Where the region of the container with this nonce lies, if it has one.
pub(crate) fn region_file(run_dir: &Path, nonce: Nonce) -> PathBuf {
    container_root(run_dir, nonce.to_string().as_ref()).join(REGION).join(REGION_FILE)
}

/// Where the container with this nonce is told what the driver charges it beyond its books.
pub(crate) fn overhead_file(run_dir: &Path, nonce: Nonce) -> PathBuf {
    run_dir.join(CONTAINERS).join(nonce.to_string()).join(LIMITS).join(OVERHEAD_FILE)
}

// === impl Directories ===

impl Directories {
    pub(super) fn new(run_dir: &Path) -> Self {
        Self { root: run_dir.join(CONTAINERS) }
    }

    fn path(&self, nonce: &str) -> Result<PathBuf, ContainerError> {
        if !is_nonce(nonce) {
            return Err(ContainerError::Nonce(nonce.to_owned()));
        }
        Ok(self.root.join(nonce))
    }

    /// Whether the container has any.
    pub(super) fn exist(&self, nonce: &str) -> bool {
        self.path(nonce).is_ok_and(|path| path.is_dir())
    }

    /// Makes what is missing of them.
    pub(super) fn make(&self, nonce: &str) -> Result<Container, ContainerError> {
        let root = self.path(nonce)?;
        let container = Container { is_new: self.make_root(&root)?, root };
        make(&container.limits(), 0o755)?;
        // The processes of a pod run as any user, and none may remove another's file.
        make(&container.region(), 0o1777)?;
        Ok(container)
    }

    /// The directory around a container's two; the one around all is made with the first.
    fn make_root(&self, path: &Path) -> Result<bool, ContainerError> {
        match files::make_directory(path, 0o755) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            made => return made.map_err(state("making directory", path)),
        }
        let above = self.root.parent().unwrap_or(&self.root);
        fs::create_dir_all(above).map_err(state("making directory", above))?;
        make(&self.root, 0o700)?;
        make(path, 0o755)
    }

    pub(super) fn remove(&self, nonce: &str) -> Result<bool, ContainerError> {
        let path = self.path(nonce)?;
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true).map_err(state("removing directory", &path)),
        }
    }

    /// The nonce under which limits for this container lie, and what they say.
    pub(super) fn find(&self, pod_uid: &str, container: &str) -> Option<(String, Limits)> {
        let entries = fs::read_dir(&self.root).ok()?;
        let nonces = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut written = nonces.filter_map(|nonce| {
            let path = self.root.join(&nonce).join(LIMITS).join(LIMITS_FILE);
            let limits = fs::read_to_string(path).ok()?.parse::<Limits>().ok()?;
            Some((nonce, limits))
        });
        written.find(|(_, limits)| limits.pod_uid == pod_uid && limits.container == container)
    }

    pub(super) fn sweep(&self, live: &HashSet<String>) -> Result<Vec<String>, ContainerError> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(state("reading directory", &self.root))?,
        };
        let nonces = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut dead: Vec<String> = nonces.filter(|nonce| is_nonce(nonce) && !live.contains(nonce)).collect();
        dead.sort();
        dead.retain(|nonce| {
            self.remove(nonce).inspect_err(|error| tracing::warn!(%error, "a dead container's directory stays")).is_ok()
        });
        Ok(dead)
    }
}

// === impl Container ===

impl Container {
    /// The directory around both, which the container doesn't see.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What it reads.
    pub fn limits(&self) -> PathBuf {
        self.root.join(LIMITS)
    }

    /// What it writes, and may leave anything in.
    pub fn region(&self) -> PathBuf {
        self.root.join(REGION)
    }

    /// Whether they were just made: nothing was ever put into them.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Replaces the limits, unless they are these already.
    pub(super) fn write(&self, limits: &Limits) -> Result<(), ContainerError> {
        let (file, text) = (self.limits().join(LIMITS_FILE), limits.to_string());
        if fs::read_to_string(&file).is_ok_and(|written| written == text) {
            return Ok(());
        }
        files::replace(&file, text).map_err(state("writing limits", &file))
    }
}

/// A nonce becomes part of a path, and of an annotation's key, whose name has 63 characters at most.
fn is_nonce(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&text.len()) && text.bytes().all(legal)
}

fn make(path: &Path, mode: u32) -> Result<bool, ContainerError> {
    files::make_directory(path, mode).map_err(state("making directory", path))
}

/// A read-only mount of what is there on the host.
pub(crate) fn mount(container_path: &str, host_path: &Path) -> Mount {
    Mount { container_path: container_path.to_owned(), host_path: host_path.display().to_string(), read_only: true }
}
