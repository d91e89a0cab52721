//! The clock pages on disk: one of each card that containers share, and a name of it beside each one's limits.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use divvy_api::CardId;
use divvy_api::container::clock_file;
use divvy_region::map::{ClockPage, PAGE};

use crate::container::files::{self, not_there};

/// The directory of the pages in `runDir`.
pub(in crate::container) const DIRECTORY: &str = "clocks";

/// All of them.
#[derive(Debug)]
pub(in crate::container) struct ClockPages {
    run_dir: PathBuf,
    /// Between finding a page and giving it a name it has none of a container.
    linking: Mutex<()>,
}

/// Where a card's page lies.
pub(in crate::container) fn path(run_dir: &Path, card: &CardId) -> PathBuf {
    run_dir.join(DIRECTORY).join(card.as_str().replace('/', "-"))
}

/// Maps the page of the file at `path`, and says which file that was.
pub(in crate::container) fn map(path: &Path, now_ns: u64) -> io::Result<(ClockPage, u64)> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let page = ClockPage::map(file.as_raw_fd(), now_ns).map_err(io::Error::from_raw_os_error)?;
    Ok((page, file.metadata()?.ino()))
}

// === impl ClockPages ===

impl ClockPages {
    pub(in crate::container) fn new(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), linking: Mutex::new(()) }
    }

    /// Names the card's page, which is made if there is none, in a container's limits directory.
    pub(in crate::container) fn link(&self, card: &CardId, limits: &Path) -> io::Result<()> {
        let _linking = self.linking.lock().unwrap_or_else(PoisonError::into_inner);
        files::make_directory(&self.run_dir.join(DIRECTORY), 0o755)?;
        let page = path(&self.run_dir, card);
        // Whoever has it mapped goes on with it, so that one that is there stays.
        if !fs::symlink_metadata(&page).is_ok_and(|found| found.is_file() && found.len() == PAGE as u64) {
            files::replace(&page, [0; PAGE])?;
        }
        files::link(&page, &limits.join(clock_file(card)))
    }

    /// Removes the pages that no container has a name for.
    pub(in crate::container) fn clear(&self) -> io::Result<()> {
        let _linking = self.linking.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = match fs::read_dir(self.run_dir.join(DIRECTORY)) {
            Err(error) => return not_there(error),
            Ok(entries) => entries,
        };
        for entry in entries {
            let path = entry?.path();
            if fs::symlink_metadata(&path).is_ok_and(|found| found.nlink() == 1) {
                fs::remove_file(&path).or_else(not_there)?;
            }
        }
        Ok(())
    }
}
