//! Tier `shim`: libdivvy, preloaded into every process of a container, keeps it to its limits.
//!
//! ```text
//! runDir/lib/libdivvy-5f3c0a11.so          the library, by its checksum
//!            ld.so.preload                 names it as containers see it       mounted
//!       /clocks/GPU-8f6d…                  a card's clock page
//!       /containers/<nonce>/libdivvy.so    another name of the library         mounted
//!                           limits/clock-GPU-8f6d…    another name of the page
//!                           region/books   the region of the container's processes
//!                           generation     how often that was made anew
//! ```
//!
//! What is mounted has a name for each container, so that a container that starts again after everything was lost finds the
//! library of today, and one that runs keeps the file that it began with. A page belongs to nobody once it has no other name.
//!
//! A container with nothing but whole cards gets none of it: there is nothing to enforce.

pub(super) mod clocks;
pub(super) mod region;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use divvy_contract::container::{LIBRARY, PRELOAD_FILE};
use divvy_contract::{CardId, Share, Tier};
use divvy_proto::deviceplugin::Mount;
use tracing::warn;

use self::clocks::Clocks;
use super::Enforcement;
use crate::delivery::{Container, DeliveryError, files, mount, state};

/// The libraries' directory in `runDir`.
pub(super) const LIBRARIES: &str = "lib";
/// The clock pages'.
pub(super) const CLOCKS: &str = "clocks";
/// How every library for Linux begins.
const ELF: &[u8] = b"\x7fELF";

/// The library as it is installed with the daemon.
#[derive(Debug)]
pub(super) struct Library(pub(super) Vec<u8>);

/// Serves it.
#[derive(Debug)]
pub struct Shim {
    library: PathBuf,
    preload: PathBuf,
    clocks: Clocks,
}

/// Whether shares leave anything to enforce.
pub(super) fn is_needed(shares: &[(CardId, Share)]) -> bool {
    shares.iter().any(|(_, share)| !share.exclusive)
}

// === impl Library ===

impl Library {
    /// Reads it, or says what is wrong with it.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        match fs::read(path) {
            Err(error) => Err(format!("{}: {error}", path.display())),
            Ok(content) if !content.starts_with(ELF) => Err(format!("{}: no library for Linux", path.display())),
            Ok(content) => Ok(Self(content)),
        }
    }
}

// === impl Shim ===

impl Shim {
    /// Puts the library where containers get it from.
    pub(super) fn install(Library(content): &Library, run_dir: &Path) -> Result<Self, DeliveryError> {
        let directory = run_dir.join(LIBRARIES);
        let library = directory.join(format!("libdivvy-{:08x}.so", crc32fast::hash(content)));
        let preload = directory.join("ld.so.preload");
        fs::create_dir_all(run_dir)
            .and_then(|()| files::make_directory(&directory, 0o755))
            .map_err(state("making directory", &directory))?;
        files::keep(&library, content).map_err(state("installing library", &library))?;
        files::keep(&preload, format!("{LIBRARY}\n").as_bytes()).map_err(state("writing", &preload))?;
        remove_others(&directory, &library);
        Ok(Self { library, preload, clocks: Clocks::new(run_dir) })
    }
}

impl Enforcement for Shim {
    fn tier(&self) -> Tier {
        Tier::Shim
    }

    fn of(&self, tier: Tier) -> Option<&dyn Enforcement> {
        (tier == Tier::Shim).then_some(self)
    }

    fn furnish(&self, container: &Container, shares: &[(CardId, Share)]) -> Result<(), DeliveryError> {
        if !is_needed(shares) {
            return Ok(());
        }
        let library = library_of(container);
        files::link(&self.library, &library).map_err(state("linking library", &library))?;
        region::ensure(container, shares.len()).map_err(state("making region", &container.region()))?;
        for (card, _) in shares {
            let limits = container.limits();
            self.clocks.link(card, &limits).map_err(state("linking clock page", &limits))?;
        }
        Ok(())
    }

    fn mounts(&self, container: &Container, shares: &[(CardId, Share)]) -> Vec<Mount> {
        if !is_needed(shares) {
            return Vec::new();
        }
        vec![mount(LIBRARY, &library_of(container)), mount(PRELOAD_FILE, &self.preload)]
    }

    fn clear(&self) {
        if let Err(error) = self.clocks.clear() {
            warn!(%error, "clock pages of cards that nobody uses stay");
        }
    }
}

fn library_of(container: &Container) -> PathBuf {
    container.root().join("libdivvy.so")
}

/// Earlier libraries: containers that use one have a name of their own for it.
fn remove_others(directory: &Path, library: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    for other in entries.filter(|path| path.extension().is_some_and(|end| end == "so") && path != library) {
        if let Err(error) = fs::remove_file(&other).or_else(not_there) {
            warn!(%error, path = %other.display(), "an earlier library stays");
        }
    }
}

fn not_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
