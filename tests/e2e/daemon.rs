//! divvy-node as a process of the node, and what its pages say.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use divvy_node::config::Scale;
use divvy_node::kubelet::client::KubeletEndpoint;
use divvy_node::kubelet::tls::Trust;
use divvy_testkit::binaries::Binaries;
use serde_json::{Value, json};

use crate::certs::Pki;
use crate::files::{Files, Ports, RUN_DIRECTORY, STATE_DIRECTORY};
use crate::node::NODE;
use crate::pages::page;
use crate::program::Program;

/// Where the kubelet finds plugins; the same whatever its root is.
pub const PLUGIN_DIRECTORY: &str = "/var/lib/kubelet/device-plugins";
/// The host's root directory for the daemon as a process, below the run's directory: with its driver, and its sysfs.
pub const HOST: &str = "host";
/// Where the driver's stand-in keeps what its processes share, in the run's directory.
pub const CARDS_IN_USE: &str = "cards";
/// The kubelet's PodResources socket.
pub const POD_RESOURCES: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

/// The process, its configuration, and where its pages are.
#[derive(Debug)]
pub struct Daemon {
    /// The process.
    pub program: Program,
    /// Where `/metrics` is.
    pub address: SocketAddr,
    /// The kubelet's API as the daemon asks it.
    pub kubelet: KubeletEndpoint,
    /// At first, and as scenarios changed them.
    keys: [Value; 2],
    files: Files,
}

/// Calls of the kubelet, by call and outcome.
pub type Calls = BTreeMap<(String, String), u64>;

// === impl Daemon ===

impl Daemon {
    /// A daemon over the fake NVML, which shows the token in `token` to the kubelet and to the API server, and finds the
    /// kubelet's cgroups below `cgroups`.
    pub fn new(
        binaries: &Binaries,
        files: &Files,
        pki: &Pki,
        ports: &Ports,
        token: &Path,
        cgroups: &Path,
    ) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.daemon));
        let kubelet = KubeletEndpoint {
            url: format!("https://127.0.0.1:{}", ports.kubelet),
            token_file: token.to_owned(),
            trust: Trust { authorities: pki.certificate("ca"), certificate: files.at("kubelet.crt") },
            timeout: Duration::from_secs(5),
        };
        let keys = json!({
            "version": "v1",
            "nodeName": NODE,
            "nodeIp": "127.0.0.1",
            "kubeletUrl": kubelet.url,
            "kubeletCa": pki.certificate("ca"),
            "kubeletTokenFile": token,
            "kubeconfig": pki.token_kubeconfig("divvy-node", token, ports.api)?,
            "stateDir": files.directory(STATE_DIRECTORY)?,
            "runDir": files.directory(RUN_DIRECTORY)?,
            "cdiDir": files.directory("cdi")?,
            "hostRoot": files.at(HOST),
            "cgroupRoot": cgroups,
            "deviceListStrategy": "volume-mounts",
            "listenAddress": address,
            // Any port: nobody asks.
            "adminAddress": "127.0.0.1:0",
            "logLevel": "info,divvy_node=debug",
            // Cards and pods come and go faster here than on a machine.
            "probeInterval": "200ms",
            "recoverAfter": "300ms",
        });
        fake_nvml::install_driver(&binaries.nvml, &files.at(HOST)).context("installing the stand-in of NVML")?;
        let config = files.at("divvy-node.yaml");
        let args = vec!["--config-file".to_owned(), config.display().to_string()];
        let program = Program::new("divvy-node", binaries.daemon.clone(), args, &files.logs());
        let scenario = files.at("scenario.json").display().to_string();
        // What programs use of a stand-in driver is there, for NVML's stand-in to show.
        let used = files.directory(CARDS_IN_USE)?.display().to_string();
        let program = program.env("FAKE_NVML_SCENARIO", scenario).env("FAKE_CUDA_STATE", used).env("NO_COLOR", "1");
        let mut daemon = Self { program, address, kubelet, keys: [keys.clone(), keys], files: files.clone() };
        daemon.configure_anew()?;
        Ok(daemon)
    }

    /// Sets these keys from its next start on.
    pub fn configure(&mut self, keys: &Value) -> anyhow::Result<()> {
        let [_, own] = &mut self.keys;
        let own = own.as_object_mut().context("keys are a map")?;
        own.extend(keys.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
        self.write_keys()
    }

    /// How much of the cards' memory it promises to pods that oversubscribe it, in percent.
    pub fn memory_scale(&self) -> u32 {
        let [_, keys] = &self.keys;
        Scale::try_from(keys["memoryScale"].to_string()).unwrap_or(Scale::ONE).percent()
    }

    /// Sets all keys to what they were at first, from its next start on.
    pub fn configure_anew(&mut self) -> anyhow::Result<()> {
        let [first, own] = &mut self.keys;
        own.clone_from(first);
        self.write_keys()
    }

    fn write_keys(&self) -> anyhow::Result<()> {
        let [_, keys] = &self.keys;
        // JSON is YAML.
        self.files.write("divvy-node.yaml", keys.to_string()).map(drop)
    }

    /// Directories of containers that it has made and not removed.
    pub fn directories(&self) -> usize {
        let count =
            |directory| std::fs::read_dir(self.files.at(RUN_DIRECTORY).join(directory)).map_or(0, Iterator::count);
        count("containers") + count("dead")
    }

    /// Whether the kubelet has it registered and it knows its cards.
    pub async fn is_ready(&self) -> bool {
        self.page("readyz").await.is_ok_and(|text| text.starts_with("ok\n"))
    }

    /// The kubelet's calls since it was started.
    pub async fn calls(&self) -> anyhow::Result<Calls> {
        let text = self.page("metrics").await?;
        let lines = text.lines().filter_map(|line| line.strip_prefix("divvy_device_plugin_calls_total{"));
        let call = |line: &str| {
            let (labels, count) = line.split_once("} ")?;
            let label = |name: &str| Some(labels.split_once(&format!("{name}=\""))?.1.split_once('"')?.0.to_owned());
            Some(((label("call")?, label("outcome")?), count.trim().parse().ok()?))
        };
        Ok(lines.filter_map(call).collect())
    }

    /// Containers that it has told from all others since it was started, by whose list of pods.
    pub async fn identified(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let text = self.page("metrics").await?;
        let lines = text.lines().filter_map(|line| line.strip_prefix("divvy_identified_containers_total{source=\""));
        let source = |line: &str| {
            let (source, count) = line.split_once("\"} ")?;
            Some((source.to_owned(), count.trim().parse().ok()?))
        };
        Ok(lines.filter_map(source).collect())
    }

    /// Revision of its ledger.
    pub async fn revision(&self) -> anyhow::Result<u64> {
        let text = self.page("metrics").await?;
        let value =
            text.lines().find_map(|line| line.strip_prefix("divvy_ledger_revision")?.split_whitespace().next_back());
        let value = value.context("divvy_ledger_revision isn't shown")?;
        value.strip_suffix(".0").unwrap_or(value).parse().with_context(|| format!("divvy_ledger_revision {value}"))
    }

    async fn page(&self, name: &str) -> anyhow::Result<String> {
        page(self.address, name).await
    }
}
