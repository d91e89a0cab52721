//! Tier `shim`: libdivvy, preloaded into every process of a container, keeps it to its limits.
//!
//! ```text
//! stateDir/lib/libdivvy-5f3c0a11.so        the library, by its checksum
//!              <nonce>.so                  another name of it for a container  mounted
//!              ld.so.preload               names it as containers see it       mounted
//! runDir/clocks/GPU-8f6d…                  a card's clock page
//!       /containers/<nonce>/limits/clock-GPU-8f6d…    another name of the page
//!                           region/books   the accounting region of the container's processes
//!                           generation     how often the region was recreated
//! ```
//!
//! The library doesn't lie in `runDir`: many systems mount `/run` `noexec`, and what some runtimes mount from there stays so
//! (runc clears it, but not in a user namespace; crun has done both). The dynamic linker leaves out what it may not execute.
//!
//! What is mounted has a name for each container, so that a container that starts again after everything was lost finds the
//! library of today, and one that runs keeps the file that it began with. A page belongs to nobody once it has no other name.
//!
//! A container with nothing but whole cards gets none of it: there is nothing to enforce.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use divvy_api::container::{LIBRARY, PRELOAD_FILE};
use divvy_api::{CardId, Share, Tier};
use divvy_node_core::ports::{Mount, SetupError};
use rustix::fs::{StatVfsMountFlags, statvfs};
use tracing::warn;

use super::Isolation;
use crate::config::Config;
use crate::container::clock::pages::ClockPages;
use crate::container::directories::{ContainerDirectories, container_root, mount};
use crate::container::files::{self, not_there, state};
use crate::container::region;

/// The libraries' directory in `stateDir`.
pub(super) const LIBRARIES: &str = "lib";
/// First bytes of every library for Linux.
const ELF: &[u8] = b"\x7fELF";
/// Extension of libraries.
const END: &str = "so";

/// The library as it is installed with the daemon.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) content: Vec<u8>,
    /// Directory that containers get the library from.
    pub(super) directory: PathBuf,
}

/// Tier `shim`, with the library installed on the node.
#[derive(Debug)]
pub struct Shim {
    library: PathBuf,
    preload: PathBuf,
    run_dir: PathBuf,
    clocks: ClockPages,
}

/// Whether shares leave anything to enforce.
pub(super) fn is_needed(shares: &[(CardId, Share)]) -> bool {
    shares.iter().any(|(_, share)| !share.exclusive)
}

// === impl Library ===

impl Library {
    /// Reads it, or says why it can't be served and what to do about that.
    pub(super) fn read(config: &Config) -> Result<Self, String> {
        let path = &*config.libdivvy_path;
        let state_dir = &*config.state_dir;
        let problem =
            |problem: &dyn Display| Err(format!("libdivvyPath: {}: {problem}: put the library there", path.display()));
        match fs::read(path) {
            Err(error) => problem(&error),
            Ok(content) if !content.starts_with(ELF) => problem(&"no library for Linux"),
            Ok(_) if is_noexec(state_dir) => Err(format!(
                "stateDir: {}: mounted noexec, so containers couldn't load the library from there: choose another place",
                state_dir.display()
            )),
            Ok(content) => Ok(Self { content, directory: state_dir.join(LIBRARIES) }),
        }
    }
}

/// Whether nothing may be executed in a directory, as far as this process can see: a runtime may have cleared the flag on
/// what it has mounted for us. One that isn't there yet is made on the file system of those above it.
fn is_noexec(directory: &Path) -> bool {
    let mounted = directory.ancestors().find_map(|above| statvfs(above).ok());
    mounted.is_some_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

// === impl Shim ===

impl Shim {
    /// The tier on this node, with its library installed.
    pub(super) fn new(config: &Config) -> Result<Self, SetupError> {
        Self::install(&Library::read(config).map_err(SetupError)?, &config.run_dir)
    }

    /// Puts the library where containers get it from.
    pub(super) fn install(Library { content, directory }: &Library, run_dir: &Path) -> Result<Self, SetupError> {
        let library = directory.join(format!("libdivvy-{:08x}.so", crc32fast::hash(content)));
        let preload = directory.join("ld.so.preload");
        let above = directory.parent().unwrap_or(directory);
        fs::create_dir_all(above)
            .and_then(|()| files::make_directory(directory, 0o755))
            .map_err(state("making directory", directory))?;
        files::keep(&library, content).map_err(state("installing library", &library))?;
        files::keep(&preload, format!("{LIBRARY}\n").as_bytes()).map_err(state("writing", &preload))?;
        let shim = Self { library, preload, run_dir: run_dir.to_owned(), clocks: ClockPages::new(run_dir) };
        shim.remove_unused();
        Ok(shim)
    }

    /// The container's own name of the library.
    fn library_of(&self, container: &ContainerDirectories) -> PathBuf {
        let nonce = container.root().file_name().unwrap_or_default();
        self.library.with_file_name(nonce).with_extension(END)
    }

    /// Removes earlier libraries, and the names of containers that have no directories any more: those are made first and
    /// go first.
    fn remove_unused(&self) {
        let entries = self.library.parent().map(fs::read_dir);
        let paths = entries.into_iter().flatten().flatten().filter_map(Result::ok).map(|entry| entry.path());
        for path in paths.filter(|path| path.extension().is_some_and(|end| end == END) && *path != self.library) {
            let nonce = path.file_stem().unwrap_or_default();
            if container_root(&self.run_dir, nonce).exists() {
                continue;
            }
            // A runtime makes a directory of a mount source that is missing.
            let removed = if path.is_dir() { fs::remove_dir(&path) } else { fs::remove_file(&path) };
            if let Err(error) = removed.or_else(not_there) {
                warn!(%error, path = %path.display(), "failed to remove an unused copy of libdivvy");
            }
        }
    }
}

impl Isolation for Shim {
    fn tier(&self) -> Tier {
        Tier::Shim
    }

    fn prepare(&self, container: &ContainerDirectories, shares: &[(CardId, Share)]) -> Result<(), SetupError> {
        if !is_needed(shares) {
            return Ok(());
        }
        let library = self.library_of(container);
        files::link(&self.library, &library).map_err(state("linking library", &library))?;
        region::ensure(container, shares.len()).map_err(state("making region", &container.region()))?;
        for (card, _) in shares {
            let limits = container.limits();
            self.clocks.link(card, &limits).map_err(state("linking clock page", &limits))?;
        }
        Ok(())
    }

    fn mounts(&self, container: &ContainerDirectories, shares: &[(CardId, Share)]) -> Vec<Mount> {
        if !is_needed(shares) {
            return Vec::new();
        }
        vec![mount(LIBRARY, &self.library_of(container)), mount(PRELOAD_FILE, &self.preload)]
    }

    fn clear(&self) {
        self.remove_unused();
        if let Err(error) = self.clocks.clear() {
            warn!(%error, "failed to remove clock pages of unused GPUs");
        }
    }
}
