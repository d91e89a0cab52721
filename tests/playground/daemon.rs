//! One node's daemon: a real `divvy-node` process.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::Context as _;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::binaries::Binaries;
use crate::kubelet::Kubelet;

/// The process and how to start it anew.
#[derive(Debug)]
pub struct Daemon {
    program: PathBuf,
    config: PathBuf,
    scenario: PathBuf,
    /// What it writes to stderr, over all its lives.
    pub log: PathBuf,
    /// Where `/metrics` is.
    pub address: SocketAddr,
    child: Child,
}

/// Where a node's files are.
#[derive(Clone, Debug)]
pub struct NodeFiles {
    /// All of them.
    pub root: PathBuf,
    /// Of the fake NVML.
    pub scenario: PathBuf,
    /// How the API server is reached, if there is one.
    pub kubeconfig: Option<PathBuf>,
}

// === impl NodeFiles ===

impl NodeFiles {
    /// Files under `root`.
    pub fn new(root: PathBuf) -> Self {
        let scenario = root.join("scenario.json");
        Self { root, scenario, kubeconfig: None }
    }
}

// === impl Daemon ===

impl Daemon {
    /// Writes the configuration and starts the process. `strategy` is the key `deviceListStrategy`.
    pub fn start(
        binaries: &Binaries,
        files: &NodeFiles,
        kubelet: &Kubelet,
        address: SocketAddr,
        strategy: &str,
    ) -> anyhow::Result<Self> {
        let (config, log) = (files.root.join("divvy-node.yaml"), files.root.join("divvy-node.log"));
        let mut keys = keys(binaries, &files.root, kubelet, address, strategy);
        if let Some(kubeconfig) = &files.kubeconfig {
            keys["kubeconfig"] = json!(kubeconfig);
        }
        // JSON is YAML.
        std::fs::write(&config, keys.to_string()).with_context(|| format!("writing {}", config.display()))?;
        let (program, scenario) = (binaries.daemon.clone(), files.scenario.clone());
        let child = spawn(&program, &config, &scenario, &log)?;
        Ok(Self { program, config, scenario, log, address, child })
    }

    /// Kills it (`SIGKILL`) and waits for its end.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("killing divvy-node")
    }

    /// Starts it again, after [`kill`](Self::kill).
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.program, &self.config, &self.scenario, &self.log)?;
        Ok(())
    }

    /// Its process ID, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// How it ended, if it did so by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

fn keys(binaries: &Binaries, root: &Path, kubelet: &Kubelet, address: SocketAddr, strategy: &str) -> serde_json::Value {
    json!({
        "version": "v1",
        "nodeName": kubelet.node_name(),
        "devicePluginDir": kubelet.plugin_dir(),
        "podResourcesSocket": kubelet.pod_resources_socket(),
        "kubeletUrl": format!("https://{}", kubelet.address()),
        "kubeletCa": kubelet.ca_file(),
        "kubeletTokenFile": kubelet.token_file(),
        "cgroupRoot": kubelet.cgroups(),
        "stateDir": root.join("state"),
        "runDir": root.join("run"),
        "cdiDir": root.join("cdi"),
        "sysfsRoot": root.join("sys"),
        "nvmlLibrary": binaries.nvml,
        "deviceListStrategy": strategy,
        "listenAddress": address,
        // Cards and pods come and go faster here than on a machine.
        "probeInterval": "200ms",
        "probeTimeout": "500ms",
        "recoverAfter": "300ms",
        "releaseInterval": "250ms",
        "kubeletSettleTime": "2s",
    })
}

/// In a process group of its own: Ctrl-C is for us, and we end the daemons.
fn spawn(program: &Path, config: &Path, scenario: &Path, log: &Path) -> anyhow::Result<Child> {
    let open = || OpenOptions::new().create(true).append(true).open(log);
    let log: File = open().with_context(|| format!("opening {}", log.display()))?;
    let mut command = Command::new(program);
    // Keys come from the environment too: a developer's KUBECONFIG must not make these daemons publish there.
    command.env_clear().env("FAKE_NVML_SCENARIO", scenario).env("NO_COLOR", "1").arg("--config-file").arg(config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).kill_on_drop(true);
    command.spawn().with_context(|| format!("starting {}", program.display()))
}
