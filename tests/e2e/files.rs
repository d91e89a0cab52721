//! Where everything is: the programs that are given, and the directory of one run.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The daemon's `stateDir`, in the run's directory.
pub const STATE_DIRECTORY: &str = "divvy-state";
/// The daemon's `runDir`, in the run's directory.
pub const RUN_DIRECTORY: &str = "divvy-run";

/// What must lie in `KUBE_BIN_DIR`.
const PROGRAMS: [&str; 10] = [
    "busybox",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
];

/// The given programs. `runc` lies beside them or in `PATH`.
#[derive(Clone, Debug)]
pub struct Programs {
    directory: PathBuf,
    /// The container runtime, by its full path.
    pub runc: PathBuf,
}

/// The directory of one run, short because sockets lie in it.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
}

/// Loopback ports that were free a moment ago.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// etcd's clients.
    pub etcd: u16,
    /// etcd's peers, of which there are none.
    pub etcd_peer: u16,
    /// kube-apiserver.
    pub api: u16,
    /// kube-controller-manager.
    pub controller_manager: u16,
    /// kube-scheduler.
    pub scheduler: u16,
    /// The kubelet's API.
    pub kubelet: u16,
    /// divvy-node's pages.
    pub daemon: u16,
}

/// A loopback address that was free a moment ago.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

// === impl Programs ===

impl Programs {
    /// Finds them; the error says what is missing.
    pub fn find() -> anyhow::Result<Self> {
        let Some(directory) = std::env::var_os("KUBE_BIN_DIR").map(PathBuf::from) else {
            bail!("KUBE_BIN_DIR isn't set: it names a directory with {}, runc", PROGRAMS.join(", "));
        };
        let directory = directory.canonicalize().with_context(|| format!("KUBE_BIN_DIR {}", directory.display()))?;
        if let Some(missing) = PROGRAMS.iter().find(|name| !directory.join(name).is_file()) {
            bail!("KUBE_BIN_DIR {} has no {missing}", directory.display());
        }
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let mut places = [directory.clone()].into_iter().chain(std::env::split_paths(&paths));
        let runc = places.find_map(|place| Some(place.join("runc")).filter(|program| program.is_file()));
        Ok(Self { directory, runc: runc.context("runc lies neither in KUBE_BIN_DIR nor in PATH")? })
    }

    /// One of them.
    pub fn get(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// One that may lie there too.
    pub fn find_given(&self, name: &str) -> Option<PathBuf> {
        Some(self.get(name)).filter(|path| path.is_file())
    }

    /// `PATH` for programs that start others of them.
    pub fn path(&self) -> String {
        let inherited = std::env::var("PATH").unwrap_or_default();
        format!("{}:{inherited}", self.directory.display())
    }
}

// === impl Files ===

impl Files {
    /// The directory at `root`.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// A file or directory in it.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// A directory in it, made if it isn't there.
    pub fn directory(&self, name: impl AsRef<Path>) -> anyhow::Result<PathBuf> {
        let path = self.at(name);
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// Writes a file in it and returns its path.
    pub fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> anyhow::Result<PathBuf> {
        let path = self.at(name);
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Where the programs' logs are.
    pub fn logs(&self) -> PathBuf {
        self.at("logs")
    }
}

// === impl Ports ===

impl Ports {
    /// Asks the system for them. Nobody holds them until the programs do.
    pub fn free() -> anyhow::Result<Self> {
        let listeners: Vec<_> = (0..7).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
        let ports: Vec<u16> =
            listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<anyhow::Result<_>>()?;
        let &[etcd, etcd_peer, api, controller_manager, scheduler, kubelet, daemon] = &*ports else {
            bail!("{} ports, not seven", ports.len())
        };
        Ok(Self { etcd, etcd_peer, api, controller_manager, scheduler, kubelet, daemon })
    }
}
