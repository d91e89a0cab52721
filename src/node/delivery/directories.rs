//! The directories of containers: `<runDir>/containers/<nonce>/{limits,region}`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{DeliveryError, Limits, files};

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
pub(super) struct Container(PathBuf);

// === impl Directories ===

impl Directories {
    pub(super) fn new(run_dir: &Path) -> Self {
        Self { root: run_dir.join("containers") }
    }

    pub(super) fn of(&self, nonce: &str) -> Result<Container, DeliveryError> {
        if !is_nonce(nonce) {
            return Err(DeliveryError::Nonce(nonce.to_owned()));
        }
        Ok(Container(self.root.join(nonce)))
    }

    pub(super) fn write(&self, nonce: &str, limits: &Limits) -> Result<(), DeliveryError> {
        let container = self.of(nonce)?;
        self.make(&container)?;
        let [directory, region] = container.mounted();
        make(&directory, 0o755)?;
        // The processes of a pod run as any user, and none may remove another's file.
        make(&region, 0o1777)?;
        let file = directory.join(LIMITS_FILE);
        files::replace(&file, &limits.to_string()).map_err(state("writing limits", &file))
    }

    /// The directory around a container's two; the root is made with the first.
    fn make(&self, Container(path): &Container) -> Result<(), DeliveryError> {
        match files::make_directory(path, 0o755) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            made => return made.map_err(state("making directory", path)),
        }
        let above = self.root.parent().unwrap_or(&self.root);
        fs::create_dir_all(above).map_err(state("making directory", above))?;
        make(&self.root, 0o700)?;
        make(path, 0o755)
    }

    pub(super) fn remove(&self, nonce: &str) -> Result<bool, DeliveryError> {
        let Container(path) = self.of(nonce)?;
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true).map_err(state("removing directory", &path)),
        }
    }

    /// The nonce under which limits for this container lie.
    pub(super) fn find(&self, pod_uid: &str, container: &str) -> Option<String> {
        let entries = fs::read_dir(&self.root).ok()?;
        let mut nonces = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        nonces.find(|nonce| {
            let path = self.root.join(nonce).join("limits").join(LIMITS_FILE);
            let limits = fs::read_to_string(path).ok().and_then(|text| text.parse::<Limits>().ok());
            limits.is_some_and(|limits| limits.pod_uid == pod_uid && limits.container == container)
        })
    }

    pub(super) fn sweep(&self, live: &HashSet<String>) -> Result<Vec<String>, DeliveryError> {
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
    /// The limits and the region.
    pub(super) fn mounted(&self) -> [PathBuf; 2] {
        ["limits", "region"].map(|name| self.0.join(name))
    }
}

/// A nonce becomes part of a path, and of an annotation's key, whose name has 63 characters at most.
fn is_nonce(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&text.len()) && text.bytes().all(legal)
}

fn make(path: &Path, mode: u32) -> Result<(), DeliveryError> {
    files::make_directory(path, mode).map_err(state("making directory", path))
}

fn state(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DeliveryError {
    let path = path.to_owned();
    move |source| DeliveryError::State { doing, path, source }
}
