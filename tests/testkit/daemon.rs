//! One node's daemon: a real `divvy-node` process.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use crate::binaries::Binaries;
use crate::process::{Process, Program};
use fake_kubelet::Kubelet;

/// The host's root directory, below a node's files.
const HOST: &str = "host";

/// Where a node's files are.
#[derive(Clone, Debug)]
pub struct NodeFiles {
    /// All of them.
    pub root: PathBuf,
    /// Scenario of the fake NVML.
    pub scenario: PathBuf,
    /// How the API server is reached, if there is one.
    pub kubeconfig: Option<PathBuf>,
    /// Keys of the daemon that differ from those that all tests use.
    pub keys: Map<String, Value>,
    /// Command that starts the daemon; none: it is started itself.
    pub prefix: Vec<OsString>,
}

// === impl NodeFiles ===

impl NodeFiles {
    /// Files under `root`.
    pub fn new(root: PathBuf) -> Self {
        let scenario = root.join("scenario.json");
        Self { root, scenario, kubeconfig: None, keys: Map::new(), prefix: Vec::new() }
    }
}

/// Starts it. `strategy` is the key `deviceListStrategy`.
pub fn start(
    binaries: &Binaries,
    files: &NodeFiles,
    kubelet: &Kubelet,
    address: SocketAddr,
    strategy: &str,
) -> anyhow::Result<Process> {
    link_nvml(binaries, &files.root.join(HOST)).context("linking the stand-in of NVML")?;
    let mut keys = keys(&files.root, kubelet, address, strategy);
    if let Some(kubeconfig) = &files.kubeconfig {
        keys["kubeconfig"] = json!(kubeconfig);
    }
    for (key, value) in &files.keys {
        keys[key] = value.clone();
    }
    let program = Program {
        path: binaries.daemon.clone(),
        name: "divvy-node",
        prefix: files.prefix.clone(),
        environment: vec![("FAKE_NVML_SCENARIO", files.scenario.clone())],
        pages: address,
    };
    Process::start(program, &files.root, &keys)
}

/// The processes share one file: there may be hundreds.
fn link_nvml(binaries: &Binaries, host: &Path) -> io::Result<()> {
    let directory = host.join("usr/lib64");
    fs::create_dir_all(&directory)?;
    match symlink(&binaries.nvml, directory.join("libnvidia-ml.so.1")) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn keys(root: &Path, kubelet: &Kubelet, address: SocketAddr, strategy: &str) -> Value {
    json!({
        "version": "v1",
        "nodeName": kubelet.node_name(),
        "kubeletRootDir": kubelet.root_dir(),
        "kubeletUrl": format!("https://{}", kubelet.address()),
        "kubeletCa": kubelet.ca_file(),
        "kubeletTokenFile": kubelet.token_file(),
        "cgroupRoot": kubelet.cgroups(),
        "stateDir": root.join("state"),
        "runDir": root.join("run"),
        // Whatever the machine has.
        "tier": "accounting",
        "cdiDir": root.join("cdi"),
        "hostRoot": root.join(HOST),
        "deviceListStrategy": strategy,
        "listenAddress": address,
        "adminAddress": SocketAddr::new(address.ip(), divvy_api::installation::ADMIN_PORT),
        // Cards and pods come and go faster here than on a machine.
        "probeInterval": "200ms",
        "recoverAfter": "300ms",
        "kubeletSettleTime": "2s",
    })
}
