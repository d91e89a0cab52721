//! `<runDir>/mps`: directories that MPS shares with its clients, and the locks by which divvy-node sees whether it is up.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use divvy_runtime::files;
use nix::mount::{MsFlags, mount};
use tracing::info;

/// `<runDir>/mps`.
#[derive(Clone, Debug)]
pub struct MpsDirectory(PathBuf);

/// A lock on a file, released when the process exits, however it does.
#[derive(Debug)]
pub struct Lock(File);

// === impl MpsDirectory ===

impl MpsDirectory {
    /// The directory in this `runDir`.
    pub fn new(run_dir: &Path) -> Self {
        Self(run_dir.join("mps"))
    }

    /// Directory of the control daemon's sockets, CUDA_MPS_PIPE_DIRECTORY. It is mounted into containers, which may do
    /// anything there that file modes allow.
    pub fn pipe(&self) -> PathBuf {
        self.0.join("pipe")
    }

    /// Directory of the logs of MPS.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Shared memory of MPS and its clients: their `/dev/shm`.
    pub fn shared_memory(&self) -> PathBuf {
        self.0.join("shm")
    }

    /// File of the compute modes that GPUs had before.
    pub(crate) fn compute_modes(&self) -> PathBuf {
        self.0.join("compute-modes")
    }

    fn ready(&self) -> PathBuf {
        self.0.join("ready")
    }

    /// Creates the directories. Servers run as the users of their clients, so any user may enter.
    pub fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        files::make_directory(&self.0, 0o755)?;
        for directory in [self.pipe(), self.log(), self.shared_memory()] {
            files::make_directory(&directory, 0o1777)?;
        }
        Ok(())
    }

    /// Creates the directories, and mounts a tmpfs at [`Self::shared_memory`] unless something is mounted there.
    pub(crate) fn mount_shared_memory(&self) -> anyhow::Result<()> {
        let path = self.shared_memory();
        let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
        let created = self.create().and_then(|()| Ok(device(&path)? != device(&self.0)?));
        let is_mounted = created.with_context(|| format!("creating {}: run-dir must be writable", path.display()))?;
        if !is_mounted {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            mount(Some("divvy-mps"), &path, Some("tmpfs"), flags, Some("mode=1777")).with_context(|| {
                format!("mounting a tmpfs at {}, which takes root in a privileged container", path.display())
            })?;
        }
        info!(path = %path.display(), "{}", if is_mounted { "already mounted" } else { "mounted" });
        Ok(())
    }

    /// Makes the caller the only supervisor of the node; `None`: there is another one.
    pub(crate) fn try_lock_supervisor(&self) -> io::Result<Option<Lock>> {
        Lock::try_take(&self.0.join("supervisor"))
    }

    /// Marks MPS as up for as long as the lock lives.
    pub fn mark_ready(&self) -> io::Result<Lock> {
        Lock::take(&self.ready())
    }

    /// PID of the supervisor if MPS is up now; else the reason and what to do.
    pub fn supervisor(&self) -> Result<u32, String> {
        let ready = self.ready();
        let help = "CUDA's MPS is not up on this node: \
                    DaemonSet divvy-mps runs it on nodes with label divvy.dev/mps=true; see the log of its pod";
        let file = match File::open(&ready) {
            Err(error) => return Err(format!("{help} ({}: {error})", ready.display())),
            Ok(file) => file,
        };
        match file.try_lock_shared() {
            Ok(()) => Err(format!("{help} ({} is not locked)", ready.display())),
            Err(TryLockError::Error(error)) => Err(format!("{help} ({}: {error})", ready.display())),
            Err(TryLockError::WouldBlock) => {
                let text = io::read_to_string(file).unwrap_or_default();
                text.trim().parse().map_err(|_no_number| format!("{}: {text:?} is not a PID", ready.display()))
            }
        }
    }
}

// === impl Lock ===

impl Lock {
    fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Self::with_pid(file).map(Some),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits for others that test the lock at this moment.
    fn take(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        // Written before it is locked: who sees the lock finds the PID.
        let file = Self::with_pid(file)?;
        file.0.lock()?;
        Ok(file)
    }

    fn with_pid(mut file: File) -> io::Result<Self> {
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self(file))
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}
