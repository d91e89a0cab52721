//! Removes directories of ended containers, which hold whatever their tenants left there.
//!
//! Such a directory is renamed into one that only waits for its removal, and is emptied there by a thread of its own, which nobody
//! waits for. A nested directory is renamed up into the dead container's own before it is read, so its depth costs neither stack
//! nor descriptors; and what a crash leaves half removed is removed like anything else. No link is followed. The region's own
//! mount is unmounted; no other is crossed, as a directory is opened only after the kernel has said that it isn't empty: of one
//! that something is mounted on it says that it is busy.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;
use std::{fs, io, thread};

use divvy_runtime::logging::WarnOnce;
use nix::mount::{MntFlags, umount2};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::setpriority_process;
use tracing::debug;
use uuid::Uuid;

use super::directories::REGION;

/// Entries that are looked at in one directory before the next one's turn: a process that was left may go on filling its own.
const TURN: usize = 10_000;
/// Delay before what failed is tried again.
const RETRY: Duration = Duration::from_secs(60);
/// Lowest priority of a thread.
const NICE: i32 = 19;

/// What came of a turn.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// The directory is gone.
    Gone,
    /// There is more to remove.
    More,
}

/// Directory of one dead container, while it is emptied.
struct Dead {
    root: Dir,
    /// Entries that may still be looked at.
    left: usize,
    /// Entries that are gone, or were renamed.
    changed: usize,
    /// The first failure.
    failed: Option<io::Error>,
}

/// Empties `dead` now and whenever the thread is unparked, and calls `removed` after that.
pub(super) fn run(dead: &Path, removed: impl Fn()) -> ! {
    if let Err(error) = setpriority_process(None, NICE) {
        debug!(%error, "removing directories with the priority of all threads");
    }
    let mut warning = WarnOnce::default();
    loop {
        let emptied = empty(dead);
        removed();
        match emptied {
            Ok(()) => {
                warning.clear();
                thread::park();
            }
            Err(error) => {
                warning.warn(format!("directories of terminated containers are left, to be removed later: {error}"));
                thread::park_timeout(RETRY);
            }
        }
    }
}

/// Removes everything in `dead`, in turns, and returns the first failure after all else is gone.
pub(super) fn empty(dead: &Path) -> io::Result<()> {
    loop {
        let entries = match fs::read_dir(dead) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let mut more = false;
        let mut failed = None;
        for entry in entries {
            let path = entry?.path();
            match remove_some(&path) {
                Ok(Progress::Gone) => {}
                Ok(Progress::More) => more = true,
                Err(error) => {
                    failed.get_or_insert_with(|| io::Error::other(format!("{}: {error}", path.display())));
                }
            }
        }
        if !more {
            return failed.map_or(Ok(()), Err);
        }
    }
}

/// Removes some of what is at `path`. Fails where nothing more can be removed.
fn remove_some(path: &Path) -> io::Result<Progress> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    if remove(CWD, &name)? {
        return Ok(Progress::Gone);
    }
    // One at a time, if several were mounted over one another.
    while umount2(&path.join(REGION), MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_ok() {}
    let root = open(CWD, &name)?;
    let mut dead = Dead { root, left: TURN, changed: 0, failed: None };
    dead.empty()?;
    match (remove(CWD, &name)?, dead) {
        (true, _) => Ok(Progress::Gone),
        (false, Dead { changed: 0, failed: Some(error), .. }) => Err(error),
        (false, _) => Ok(Progress::More),
    }
}

/// Removes a file or an empty directory, and says whether it is gone.
fn remove(directory: impl AsFd, name: &CStr) -> io::Result<bool> {
    let removed = match unlinkat(&directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => unlinkat(&directory, name, AtFlags::REMOVEDIR),
        removed => removed,
    };
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn open(directory: impl AsFd, name: &CStr) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(Dir::new(openat(directory, name, flags, Mode::empty())?)?)
}

// === impl Dead ===

impl Dead {
    /// Removes what is in the directory, and of nested directories what isn't nested deeper: that is renamed into this one.
    fn empty(&mut self) -> io::Result<()> {
        let mut before = None;
        while before.replace(self.changed) != Some(self.changed) {
            self.root.rewind();
            while self.left > 0
                && let Some(entry) = self.root.read()
            {
                let entry = entry?;
                let name = entry.file_name();
                if name != c"." && name != c".." {
                    let emptied = self.remove_or_empty(name);
                    self.note(emptied);
                }
            }
        }
        Ok(())
    }

    fn remove_or_empty(&mut self, name: &CStr) -> io::Result<()> {
        self.left = self.left.saturating_sub(1);
        if remove(self.root.fd()?, name)? {
            self.changed += 1;
            return Ok(());
        }
        let mut nested = open(self.root.fd()?, name)?;
        while self.left > 0
            && let Some(entry) = nested.read()
        {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                let moved = self.remove_or_move(&nested, name);
                self.note(moved);
            }
        }
        self.changed += usize::from(remove(self.root.fd()?, name)?);
        Ok(())
    }

    fn remove_or_move(&mut self, nested: &Dir, name: &CStr) -> io::Result<()> {
        self.left = self.left.saturating_sub(1);
        if !remove(nested.fd()?, name)? {
            renameat(nested.fd()?, name, self.root.fd()?, Uuid::new_v4().simple().to_string())?;
        }
        self.changed += 1;
        Ok(())
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests;
