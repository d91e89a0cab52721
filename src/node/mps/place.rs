//! The service's directories on the node, and how it is told whether it is up.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::container::files;

/// `<runDir>/mps`.
#[derive(Clone, Debug)]
pub struct Place(PathBuf);

/// A lock on a file, which ends with the process, however that ends.
#[derive(Debug)]
pub(crate) struct Lock(File);

// === impl Place ===

impl Place {
    /// The one below `runDir`.
    pub fn new(run_dir: &Path) -> Self {
        Self(run_dir.join("mps"))
    }

    /// Where processes reach the service: the control daemon's sockets. Containers have it, and may do anything there
    /// that its owner doesn't forbid.
    pub fn pipe(&self) -> PathBuf {
        self.0.join("pipe")
    }

    /// Where the service writes what it does.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The memory that processes share with the service, and with each other: their `/dev/shm`.
    pub fn shared_memory(&self) -> PathBuf {
        self.0.join("shm")
    }

    /// The compute modes that the cards had before.
    pub(super) fn modes(&self) -> PathBuf {
        self.0.join("compute-modes")
    }

    fn ready(&self) -> PathBuf {
        self.0.join("ready")
    }

    /// Makes the directories. Servers run as the users of their clients, so all must get through.
    pub(crate) fn make(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        files::make_directory(&self.0, 0o755)?;
        for directory in [self.pipe(), self.log(), self.shared_memory()] {
            files::make_directory(&directory, 0o1777)?;
        }
        Ok(())
    }

    /// Makes the caller the only supervisor of the node; `None`: another one is.
    pub(super) fn request(&self) -> io::Result<Option<Lock>> {
        Lock::try_take(&self.0.join("supervisor"))
    }

    /// Says that the service is up, as long as the lock lives.
    pub(crate) fn announce(&self) -> io::Result<Lock> {
        Lock::take(&self.ready())
    }

    /// The process that keeps the service up, if it is up now; else why that isn't known.
    pub fn supervisor(&self) -> Result<u32, String> {
        let ready = self.ready();
        let help = "CUDA's multi-process service is not up on this node: \
                    `divvy-node mps` (DaemonSet divvy-mps) keeps it up where it runs, and its log says what it lacks";
        let file = match File::open(&ready) {
            Err(error) => return Err(format!("{help} ({}: {error})", ready.display())),
            Ok(file) => file,
        };
        match file.try_lock_shared() {
            Ok(()) => Err(format!("{help} (nobody holds {})", ready.display())),
            Err(TryLockError::Error(error)) => Err(format!("{help} ({}: {error})", ready.display())),
            Err(TryLockError::WouldBlock) => {
                let text = io::read_to_string(file).unwrap_or_default();
                text.trim().parse().map_err(|_no_number| format!("{}: {text:?} is no process", ready.display()))
            }
        }
    }
}

// === impl Lock ===

impl Lock {
    fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Self::signed(file).map(Some),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits for those who look whether it is held.
    fn take(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        // Before it is locked: whoever sees the lock finds the number.
        let file = Self::signed(file)?;
        file.0.lock()?;
        Ok(file)
    }

    fn signed(mut file: File) -> io::Result<Self> {
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self(file))
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}
