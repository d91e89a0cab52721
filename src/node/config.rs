//! The daemon's configuration: every key once, and what the keys must agree on.
//!
//! `divvy_runtime::settings` says how they are written and which source wins. Names are those of NVIDIA's plugin where it has the
//! same key.
//!
//! The file may have `overrides`: lists of keys for nodes whose labels a selector matches. Of two that match the later
//! one wins, and each of them wins over the rest of the file.

mod overrides;
mod places;
mod strategy;
mod values;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use divvy_api::ResourceNames;
use divvy_api::annotation::PolicyName;
use divvy_api::container::LIBRARY;
use divvy_api::names::ResourceName;
use divvy_api::quantity::{Cores, Memory};
use divvy_api::request::Defaults;
pub use divvy_runtime::settings::{
    AbsolutePath, Advertise, ConfigError, DefaultMemory, KeySet, List, LogFilter, LogFormat, Period, Switch, Within,
};

use overrides::Selector;
pub use places::{AnnotationPrefix, KubeletUrl, NodeName};
pub use strategy::{DeviceListStrategy, Strategy};
pub use values::{MigStrategy, Scale, Served};

divvy_runtime::keys! {
    file {
        /// Of an entry of `overrides`, and only there.
        selector: Option<Selector>,
        /// Keys of nodes with certain labels.
        overrides: Vec<Keys>,
    }
    required {
        /// Name of this node's Node object; in a pod from spec.nodeName
        node_name: NodeName,
    }
    /// Address of this node; in a pod from status.hostIP
    node_ip: IpAddr = Ipv4Addr::LOCALHOST.into(),

    /// Extended resource that counts cards
    resource_count: ResourceName = ResourceNames::default().count,
    /// Extended resource for memory of each card, in MiB
    resource_memory: ResourceName = ResourceNames::default().memory,
    /// Extended resource for memory of each card, in percent
    resource_memory_percentage: ResourceName = ResourceNames::default().memory_percentage,
    /// Extended resource for compute of each card, in percent
    resource_cores: ResourceName = ResourceNames::default().cores,
    /// Most containers that can share a card: 1 to 256
    slots_per_card: Within<1, 256> = Within::new(32),
    /// How memory and compute reach the scheduler: amounts in the Node's status, or devices, a unit each
    advertise: Advertise = Advertise::default(),
    /// With devices, a unit of memory in MiB: 16 to 16384; it is part of the resource's name
    memory_unit: Within<16, 16384> = Within::new(256),
    /// Whether slots carry their card's NUMA node for the kubelet's topology manager: on or off
    numa_topology: Switch = Switch::default(),
    /// Promised memory as a multiple of a card's: 0.1 to 10
    memory_scale: Scale = Scale::ONE,
    /// Promised compute as a multiple of a card's: 0.1 to 10
    cores_scale: Scale = Scale::ONE,
    /// Memory of a request that names cores alone: same-as-cores, a percentage such as 25%, or an amount such as 4Gi
    default_memory: DefaultMemory = DefaultMemory::SameAsCores,
    /// Cores of a request that names memory alone: 0 to 99
    default_cores: Within<0, 99> = Within::new(0),
    /// Which cards a pod gets: binpack, spread, random, least-fragmentation or topology
    card_policy: PolicyName = PolicyName::default(),
    /// Seed of the policy random
    policy_seed: Within<0, { u32::MAX }> = Within::new(0),
    /// How shares are enforced: accounting (by nothing), shim (by libdivvy in the container), mps (by CUDA's multi-process service too), mig (by the hardware: each pod gets whole MIG instances) or auto (the strongest of the first three that the node has)
    tier: Served = Served::default(),
    /// The library that is preloaded into containers, where the daemon sees it; it is copied to stateDir
    libdivvy_path: AbsolutePath = AbsolutePath::new(LIBRARY),

    /// How a container is given its cards: auto, or any of envvar, volume-mounts, cdi-annotations and cdi-cri
    device_list_strategy: DeviceListStrategy = DeviceListStrategy::Auto,
    /// Directory of the CDI specification
    cdi_dir: AbsolutePath = AbsolutePath::new("/var/run/cdi"),
    /// Prefix of the annotation of cdi-annotations
    cdi_annotation_prefix: AnnotationPrefix = AnnotationPrefix::of_cdi(),
    /// nvidia-cdi-hook, at the same path on the host and for the daemon; not used where it doesn't exist
    nvidia_cdi_hook_path: AbsolutePath = AbsolutePath::new("/usr/bin/nvidia-cdi-hook"),
    /// Root of the driver's installation on the host
    driver_root: AbsolutePath = AbsolutePath::new("/"),
    /// Where the daemon sees the driver's root, unless at the path of the host
    driver_root_ctr_path: AbsolutePath = driver_root.clone(),
    /// Directory whose dev/ holds the device nodes, on the host and for the daemon
    dev_root: AbsolutePath = AbsolutePath::new("/"),

    /// The kubelet's directory for plugin sockets
    device_plugin_dir: AbsolutePath = AbsolutePath::new("/var/lib/kubelet/device-plugins"),
    /// The kubelet's PodResources socket
    pod_resources_socket: AbsolutePath = AbsolutePath::new("/var/lib/kubelet/pod-resources/kubelet.sock"),
    /// The kubelet's own API, unless at port 10250 of the node's address
    kubelet_url: KubeletUrl = KubeletUrl::of(node_ip),
    /// Certificates of the authorities that may have signed the kubelet's
    kubelet_ca: AbsolutePath = AbsolutePath::new("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"),
    /// The kubelet's own certificate on the host, trusted whoever signed it
    kubelet_certificate: AbsolutePath = AbsolutePath::new("/var/lib/kubelet/pki/kubelet.crt"),
    /// Token that the daemon shows to the kubelet
    kubelet_token_file: AbsolutePath = AbsolutePath::new("/var/run/secrets/kubernetes.io/serviceaccount/token"),
    /// Where the daemon sees the host's cgroups, or those below the kubelet's cgroup root
    cgroup_root: AbsolutePath = AbsolutePath::new("/sys/fs/cgroup"),
    /// Longest wait for the kubelet's pod list while it waits for an Allocate
    kubelet_timeout: Period = Period::millis(500),

    /// Kubeconfig of the API server, unless the daemon runs as a pod of its cluster
    kubeconfig: AbsolutePath,

    /// Directory of the ledger and of the library; survives a reboot; the same path on the host and for the daemon
    state_dir: AbsolutePath = AbsolutePath::new("/var/lib/divvy"),
    /// Directory of the containers' limits, best on a tmpfs; the same path on the host and for the daemon
    run_dir: AbsolutePath = AbsolutePath::new("/run/divvy"),
    /// How long no pod must have come onto the kubelet's list before one that is missing from it has ended
    kubelet_settle_time: Period = Period::seconds(20),
    /// How often shares of ended pods are looked for
    release_interval: Period = Period::seconds(5),
    /// Longest wait for running calls after SIGTERM
    drain_timeout: Period = Period::seconds(30),

    /// NVML's library; default: libnvidia-ml.so.1 as the loader finds it
    nvml_library: PathBuf,
    /// Where sysfs is mounted
    sysfs_root: AbsolutePath = AbsolutePath::new("/sys"),
    /// What MIG instances are: none (then a card in MIG mode isn't given out), single (cards like any other) or mixed (cards of the resource mig-PROFILE)
    mig_strategy: MigStrategy = MigStrategy::None,
    /// How often the cards are looked at
    probe_interval: Period = Period::seconds(5),
    /// Longest wait for an answer of NVML
    probe_timeout: Period = Period::seconds(10),
    /// Whether the GpuNode says how busy each card is: on or off
    publish_utilization: Switch = Switch::default(),
    /// XIDs that are faults of applications, not of the card
    ignored_xids: List<Within<1, 1023>> = List([13, 31, 43, 45, 68, 109].map(Within::new).to_vec()),
    /// How long a card must be sound before it is given out again
    recover_after: Period = Period::seconds(60),

    /// Where /metrics, /healthz, /readyz and /config are served
    listen_address: SocketAddr = (Ipv4Addr::UNSPECIFIED, 9402).into(),
    /// What is logged: levels by target, such as info,divvy_node=debug
    log_level: LogFilter = LogFilter::default(),
    /// How it is logged: plain or json
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

    /// Whether some nodes have keys of their own.
    pub fn has_overrides(&self) -> bool {
        !self.overrides.is_empty()
    }

    /// The keys for a node with these labels, and the selectors of the overrides that are among them.
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
        config.request_names()?;
        Ok(config)
    }
}

// === impl Config ===

impl Config {
    /// The resources that requests are written in.
    pub fn resource_names(&self) -> ResourceNames {
        self.request_names().expect("into_config has tried")
    }

    fn request_names(&self) -> Result<ResourceNames, ConfigError> {
        Ok(self.advertise.request_names(self.amount_names(), Memory::mib(self.memory_unit.get().into()))?)
    }

    /// The resources as amounts in the Node's status, whether or not they are.
    pub fn amount_names(&self) -> ResourceNames {
        ResourceNames {
            count: self.resource_count.clone(),
            memory: self.resource_memory.clone(),
            memory_percentage: self.resource_memory_percentage.clone(),
            cores: self.resource_cores.clone(),
            ..ResourceNames::default()
        }
    }

    /// What stands for amounts that a request leaves out.
    pub fn request_defaults(&self) -> Defaults {
        Defaults { memory: self.default_memory.amount(), cores: Cores::new(self.default_cores.get()) }
    }
}

#[cfg(test)]
mod tests;
