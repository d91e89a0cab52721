//! The daemon's configuration: all keys, and checks across keys.
//!
//! Syntax and precedence of the sources are in `divvy_runtime::settings`. Names are those of NVIDIA's plugin where it has the same
//! key.
//!
//! The file may have `overrides`: lists of keys for nodes whose labels a selector matches. Of two that match the later
//! one wins, and each of them wins over the rest of the file.

mod card_overrides;
mod kubelet_url;
mod overrides;
mod oversubscription;
mod strategy;
mod values;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use divvy_api::ResourceNames;
use divvy_api::container::LIBRARY;
use divvy_api::installation;
pub use divvy_runtime::settings::{
    AbsolutePath, Advertise, ConfigError, DefaultMemory, KeySet, List, LogFilter, LogFormat, LoopbackAddress,
    ObjectName, Period, Switch, Within,
};

pub use card_overrides::CardOverrides;
pub use kubelet_url::KubeletUrl;
use overrides::Selector;
pub use strategy::{DeviceListStrategy, Strategy};
pub use values::{MemoryAmount, MigStrategy, Scale, TierChoice};

/// However often GPUs are probed: a crowded node may keep a thread waiting for longer than a driver does.
const SHORTEST_PROBE_TIMEOUT: Duration = Duration::from_millis(1500);

divvy_runtime::keys! {
    file {
        /// Nodes that an entry of `overrides` is for; only there.
        selector: Option<Selector>,
        /// Keys of nodes with certain labels.
        overrides: Vec<Keys>,
    }
    required {
        /// Name of this node's Node object; in a pod from spec.nodeName
        node_name: ObjectName,
    }
    include [divvy_api::gpu_keys]

    /// Address of this node; in a pod from status.hostIP
    node_ip: IpAddr = Ipv4Addr::LOCALHOST.into(),

    /// Whether devices carry their GPU's NUMA node for the kubelet's topology manager: on or off
    numa_topology: Switch = Switch::default(),
    /// Allocatable memory as a multiple of a GPU's: 0.1 to 10; above 1 only for pods with the annotation oversubscribe: true, and with oversubscribe-host-memory
    memory_scale: Scale = Scale::ONE,
    /// Host memory that is allocated to pods in place of the GPUs' where memory-scale is above 1, such as 64Gi; 0: none
    oversubscribe_host_memory: MemoryAmount = MemoryAmount::NONE,
    /// Allocatable compute as a multiple of a GPU's: 0.1 to 10
    cores_scale: Scale = Scale::ONE,
    /// Isolation tier, or auto
    tier: TierChoice = TierChoice::default(),
    /// Namespaces whose pods may ask for tier accounting: their shares are then recorded and not enforced, except where MPS has the GPUs
    accounting_namespaces: List<String> = List(Vec::new()),
    /// Path of libdivvy.so in the daemon's filesystem; it is copied to stateDir and preloaded into containers
    libdivvy_path: AbsolutePath = AbsolutePath::new(LIBRARY),

    /// Keys of some of the node's GPUs, by model, uuid or index: slotsPerCard, tier, memory (where NVML reports none), memoryScale and coresScale, such as [{index: 0, slotsPerCard: 4}]
    card_overrides: CardOverrides = CardOverrides::default(),

    /// How GPUs are passed to containers: auto, or any of envvar, volume-mounts, cdi-annotations and cdi-cri
    device_list_strategy: DeviceListStrategy = DeviceListStrategy::Auto,
    /// Directory of the CDI specification
    cdi_dir: AbsolutePath = AbsolutePath::new("/var/run/cdi"),
    /// The host's root directory in the daemon's filesystem
    host_root: AbsolutePath = AbsolutePath::new("/"),
    /// Root of the driver's installation on the host, such as /run/nvidia/driver; device nodes too are there where it has dev/nvidiactl
    driver_root: AbsolutePath = AbsolutePath::new("/"),

    /// The kubelet's directory, with device-plugins/ and pod-resources/; the same path on the host and for the daemon
    kubelet_root_dir: AbsolutePath = AbsolutePath::new("/var/lib/kubelet"),
    /// URL of the kubelet's API; by default port 10250 of node-ip
    kubelet_url: KubeletUrl = KubeletUrl::on_node(node_ip),
    /// CA certificates that may have signed the kubelet's serving certificate
    kubelet_ca: AbsolutePath = AbsolutePath::new("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"),
    /// The kubelet's self-signed serving certificate, which is trusted too; by default in kubelet-root-dir below host-root
    kubelet_certificate: AbsolutePath = kubelet_root_dir.child("pki/kubelet.crt").on_host(&host_root),
    /// File with the bearer token for the kubelet's API
    kubelet_token_file: AbsolutePath = AbsolutePath::new("/var/run/secrets/kubernetes.io/serviceaccount/token"),
    /// Path of the host's cgroups, or those below the kubelet's cgroup root, in the daemon's filesystem; by default below host-root
    cgroup_root: AbsolutePath = AbsolutePath::new("/sys/fs/cgroup").on_host(&host_root),
    /// Longest wait for the kubelet's pod list to begin or go on; up to 15s while the kubelet is known to take longer, or if nothing replaces the list
    kubelet_timeout: Period = Period::millis(500),

    /// Kubeconfig of the API server, unless the daemon runs as a pod of its cluster
    kubeconfig: AbsolutePath,

    /// Directory of the ledger and of the library; survives a reboot; the same path on the host and for the daemon
    state_dir: AbsolutePath = AbsolutePath::new("/var/lib/divvy"),
    /// Directory of the containers' limits, best on a tmpfs; the same path on the host and for the daemon
    run_dir: AbsolutePath = AbsolutePath::new("/run/divvy"),
    /// Quiet period after a kubelet restart before pods missing from its list are treated as terminated
    kubelet_settle_time: Period = Period::seconds(20),
    /// Longest wait for pods under admission after SIGTERM, and then for running calls
    drain_timeout: Period = Period::seconds(30),

    /// MIG strategy: none (GPUs in MIG mode are not advertised), single (instances count as GPUs) or mixed (instances have the resource mig-PROFILE)
    mig_strategy: MigStrategy = MigStrategy::None,
    /// How often GPUs are probed, and terminated pods looked for; NVML may take twice as long for an answer, and at least 1500ms
    probe_interval: Period = Period::seconds(5),
    /// XIDs that don't make a GPU unhealthy, as applications cause them
    ignored_xids: List<Within<1, 1023>> = List([13, 31, 43, 45, 68, 109].map(Within::new).to_vec()),
    /// How long a GPU must be healthy before it is allocated again
    recover_after: Period = Period::seconds(60),

    /// Address of /metrics, /healthz and /readyz
    listen_address: SocketAddr = (Ipv4Addr::UNSPECIFIED, installation::DAEMON_METRICS_PORT).into(),
    /// Loopback address of /usage, /config and /debug, reached with kubectl port-forward
    admin_address: LoopbackAddress = LoopbackAddress::port(installation::ADMIN_PORT),
    /// Log levels by target, such as info,divvy_node=debug
    log_level: LogFilter = LogFilter::default(),
    /// Log format: plain or json
    log_format: LogFormat = LogFormat::default(),
}

// === impl Keys ===

impl Keys {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let keys: Self = divvy_runtime::settings::read(path)?;
        keys.check_file().map_err(|problem| ConfigError::File { file: path.to_owned(), problem })?;
        Ok(keys)
    }

    fn check_file(&self) -> Result<(), String> {
        if self.selector.is_some() {
            return Err("selector: stands in an entry of overrides only".to_owned());
        }
        for (at, entry) in self.overrides.iter().enumerate() {
            entry.check_override().map_err(|problem| format!("overrides[{at}]: {problem}"))?;
        }
        Ok(())
    }

    /// Whether there are overrides for some nodes.
    pub fn has_overrides(&self) -> bool {
        !self.overrides.is_empty()
    }

    /// The keys for a node with these labels, and the selectors of the overrides that apply to it.
    #[must_use]
    pub fn on(mut self, labels: &BTreeMap<String, String>) -> (Self, Vec<String>) {
        let mut selectors = Vec::new();
        for entry in std::mem::take(&mut self.overrides) {
            let Some(selector) = entry.selector.as_ref().filter(|selector| selector.matches(labels)) else { continue };
            selectors.push(selector.to_string());
            self = entry.or(self);
        }
        (self, selectors)
    }

    fn check_override(&self) -> Result<(), String> {
        if self.selector.is_none() {
            return Err(
                "selector is missing: it says which nodes the keys are for, by matchLabels or matchExpressions"
                    .to_owned(),
            );
        }
        if self.version.is_some() || self.has_overrides() {
            return Err("version and overrides stand at the top of the file only".to_owned());
        }
        let early = [
            ("nodeName", self.node_name.is_some()),
            ("kubeconfig", self.kubeconfig.is_some()),
            ("stateDir", self.state_dir.is_some()),
        ];
        if let Some((key, _)) = early.iter().find(|(_, given)| *given) {
            return Err(format!("{key} can't be overridden: it is needed before the node's labels are known"));
        }
        Ok(())
    }

    /// The configuration that the keys make: absent ones take their defaults, and what must agree is compared.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let config = self.resolve()?;
        config.cluster().resource_names()?;
        Ok(config)
    }
}

// === impl Config ===

impl Config {
    /// Names of the resources in pods' requests.
    pub fn resource_names(&self) -> ResourceNames {
        self.cluster().resource_names().expect("into_config has tried")
    }

    /// The kubelet's directory for sockets of plugins.
    pub fn device_plugin_dir(&self) -> PathBuf {
        self.kubelet_root_dir.join("device-plugins")
    }

    /// The kubelet's socket for `PodResources`.
    pub fn pod_resources_socket(&self) -> PathBuf {
        self.kubelet_root_dir.join("pod-resources/kubelet.sock")
    }

    /// How long NVML may take for an answer before the call counts as hanging.
    pub fn probe_timeout(&self) -> Duration {
        (2 * self.probe_interval.get()).max(SHORTEST_PROBE_TIMEOUT)
    }
}

#[cfg(test)]
mod tests;
