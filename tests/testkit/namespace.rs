//! A mount namespace of its own, in which mounts can be made without harm to the machine.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Mounts the directory over itself as a pod's volume with `mountPropagation: Bidirectional` is, and waits for the end of input.
const SHARED: &str = r#"mount --bind "$0" "$0" && mount --make-shared "$0" && echo ready && exec cat >/dev/null"#;
/// Mounts an empty file system with the options `$1` over the directory.
const SIZED: &str = r#"mount -t tmpfs -o "$1" none "$0" && echo ready && exec cat >/dev/null"#;

/// A mount namespace in which one directory is a mount. It lives until this is dropped, whatever becomes of the processes that
/// enter it.
#[derive(Debug)]
pub struct MountNamespace {
    holder: Child,
}

// === impl MountNamespace ===

impl MountNamespace {
    /// A namespace in which `directory` is a mount that propagates, as `runDir` is in the daemon's pod; `None`, with a message,
    /// where this machine allows no mounts.
    pub fn shared(directory: &Path) -> Option<Self> {
        Self::hold(&[SHARED.as_ref(), directory.as_os_str()])
    }

    /// The same, with a tmpfs with these options over `directory` that doesn't propagate.
    pub fn sized(directory: &Path, options: &str) -> Option<Self> {
        Self::hold(&[SIZED.as_ref(), directory.as_os_str(), options.as_ref()])
    }

    fn hold(script: &[&OsStr]) -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c"]).args(script);
        let holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut namespace = Self { holder };
        let mut said = String::new();
        let read = BufReader::new(namespace.holder.stdout.take()?).read_line(&mut said);
        let is_ready = read.is_ok() && said == "ready\n";
        if !is_ready {
            eprintln!("left out: this machine allows no mounts in a namespace");
        }
        is_ready.then_some(namespace)
    }

    /// Words that start a program in there.
    pub fn prefix(&self) -> Vec<OsString> {
        let target = self.holder.id().to_string();
        let words = ["nsenter", "--user", "--preserve-credentials", "--mount", "--target", &target, "--"];
        words.map(OsString::from).to_vec()
    }

    /// Where this process finds what has this path in there.
    pub fn path(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Directories in there on which something is mounted, once for each mount.
    pub fn mounts(&self) -> Vec<PathBuf> {
        let table = std::fs::read_to_string(format!("/proc/{}/mountinfo", self.holder.id())).unwrap_or_default();
        table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect()
    }
}

impl Drop for MountNamespace {
    fn drop(&mut self) {
        // One that has ended by itself is as good.
        self.holder.kill().unwrap_or_default();
        self.holder.wait().map(drop).unwrap_or_default();
    }
}
