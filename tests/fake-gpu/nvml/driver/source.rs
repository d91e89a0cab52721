//! Where the scenario comes from, and reading it again when the file has changed.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use fake_card::own_path;

use crate::scenario::Scenario;

/// A scenario file.
pub(super) struct Source {
    path: Option<PathBuf>,
    /// The version of the file that was read last, good or bad.
    stamp: Option<Stamp>,
    /// The last good one.
    pub(super) scenario: Option<Scenario>,
}

/// Tells one version of a file from the next: inode, size and time of modification.
type Stamp = (u64, u64, i64, i64);

// === impl Source ===

impl Source {
    pub(super) fn new() -> Self {
        Self { path: path(), stamp: None, scenario: None }
    }

    /// Reads the file if it has changed. A bad one is complained about once, and the last good one stays.
    pub(super) fn refresh(&mut self) {
        let Some(path) = &self.path else { return };
        let stamp = stamp(path);
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        match Scenario::read(path) {
            Ok(scenario) => self.scenario = Some(scenario),
            Err(error) => complain(&format!("fake-nvml: {}: {error}\n", path.display())),
        }
    }
}

/// Where the scenario is.
pub(crate) fn path() -> Option<PathBuf> {
    // Where the library lies: it may be loaded by a link in a container.
    let beside = || Some(own_path()?.canonicalize().ok()?.with_file_name("scenario.json"));
    env::var_os("FAKE_NVML_SCENARIO").map(PathBuf::from).or_else(beside)
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

fn complain(message: &str) {
    // A caller that closed its stderr can't be told; that is no reason to end it, as `eprintln!` would.
    drop(io::stderr().write_all(message.as_bytes()));
}
