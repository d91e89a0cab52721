//! The daemon's configuration: every key once, and what the keys must agree on.
//!
//! A key is written in camel case in the file (`slotsPerCard`), as a flag (`--slots-per-card`) and as an environment
//! variable (`SLOTS_PER_CARD`). A flag wins over the environment, the environment over the file, the file over the
//! default. Names are those of NVIDIA's plugin where it has the same key.
//!
//! The file may have `overrides`: lists of keys for nodes whose labels a selector matches. Of two that match the later
//! one wins, and each of them wins over the rest of the file.

mod keys;
mod list;
mod overrides;
mod places;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use divvy_contract::ResourceNames;
use divvy_contract::annotation::PolicyName;
use divvy_contract::claim::{Defaults, claim_resources};
use divvy_contract::names::ResourceName;
use divvy_contract::quantity::{Cores, Memory};
use serde::{Deserialize, Serialize};

use crate::delivery::{Choice, DeliveryOptions};
use crate::inventory::MigStrategy;
pub use list::List;
use overrides::Selector;
pub use places::{AbsolutePath, AnnotationPrefix, KubeletUrl, NodeName};
pub use values::{Advertise, DefaultMemory, LogFilter, LogFormat, Period, Scale, Served, Switch, Within};

keys::keys! {
    /// Name of this node's Node object; in a pod from spec.nodeName
    node_name: NodeName = return Err(ConfigError::NodeName),
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
    /// Memory of a claim that names cores alone: same-as-cores, a percentage such as 25%, or an amount such as 4Gi
    default_memory: DefaultMemory = DefaultMemory::SameAsCores,
    /// Cores of a claim that names memory alone: 0 to 99
    default_cores: Within<0, 99> = Within::new(0),
    /// Which cards a pod gets: binpack, spread, random, least-fragmentation or topology
    card_policy: PolicyName = PolicyName::default(),
    /// Seed of the policy random
    policy_seed: Within<0, { u32::MAX }> = Within::new(0),
    /// How shares are enforced; this build has accounting, which enforces nothing
    tier: Served = Served::default(),

    /// How a container is given its cards: auto, or any of envvar, volume-mounts, cdi-annotations and cdi-cri
    device_list_strategy: Choice = Choice::Auto,
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

    /// Directory of the ledger; survives a reboot
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

/// Format of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Version {
    #[serde(rename = "v1")]
    V1,
}

/// A configuration that is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No such file, or not ours to read.
    #[error("reading configuration file {}: {source}", file.display())]
    Unreadable {
        /// `--config-file`.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Not the YAML that it should be; the parser gives line, column and the keys or values that are allowed.
    #[error("configuration file {}: {problem}", file.display())]
    File {
        /// `--config-file`.
        file: PathBuf,
        /// What the parser says.
        problem: String,
    },
    /// A variable whose text isn't a value of its key.
    #[error("environment variable {name}={value:?}: {problem}")]
    Environment {
        /// The variable.
        name: String,
        /// Its text.
        value: OsString,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// The one key without a default.
    #[error("nodeName is missing: set --node-name, the environment variable NODE_NAME or nodeName in the file")]
    NodeName,
    /// The four resources are told apart by their names.
    #[error(
        "resource {0} stands for two amounts: resourceCount, resourceMemory, resourceMemoryPercentage and resourceCores must differ"
    )]
    SameResource(ResourceName),
    /// The name that says how large a unit is.
    #[error("resourceMemory with memoryUnit in its name: {0}")]
    UnitName(divvy_contract::names::BadResourceName),
}

// === impl Keys ===

impl Keys {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { file: path.to_owned(), source })?;
        let refused = |problem| ConfigError::File { file: path.to_owned(), problem };
        let keys: Self = serde_saphyr::from_str(&text).map_err(|error| refused(explain(&text, &error)))?;
        if keys.version.is_none() {
            return Err(refused("version is missing: the first line should be \"version: v1\"".to_owned()));
        }
        if keys.selector.is_some() {
            return Err(refused("selector: stands in an entry of overrides only".to_owned()));
        }
        for (at, entry) in keys.overrides.iter().enumerate() {
            entry.check_override().map_err(|problem| refused(format!("overrides[{at}]: {problem}")))?;
        }
        Ok(keys)
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
        let Some(selector) = &self.selector else {
            return Err(
                "selector is missing: it says which nodes the keys are for, by matchLabels or matchExpressions"
                    .to_owned(),
            );
        };
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
        selector.check()
    }

    /// The configuration that the keys make: absent ones take their defaults, and what must agree is compared.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let config = self.resolve()?;
        config.check()?;
        Ok(config)
    }
}

/// What the parser says, after line, column and the key that it is about.
fn explain(text: &str, error: &serde_saphyr::Error) -> String {
    let problem = error.without_snippet().render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let Some(place) = error.location() else { return problem };
    let (line, column) = (place.line(), place.column());
    let problem = problem.strip_suffix(&format!(" at line {line}, column {column}")).unwrap_or(&problem);
    // A value's key is the last one that begins a line, or an item of a list.
    let key = |line: &str| {
        let (key, _) = line.trim_start_matches([' ', '-']).split_once(':')?;
        Some(key.to_owned()).filter(|key| key.starts_with(char::is_alphabetic))
    };
    let seen = usize::try_from(line).unwrap_or(usize::MAX);
    let key = text.lines().take(seen).filter_map(key).last().map(|key| format!("{key}: ")).unwrap_or_default();
    format!("line {line}, column {column}: {key}{problem}")
}

// === impl Config ===

impl Config {
    fn check(&self) -> Result<(), ConfigError> {
        let names = self.amount_names();
        if self.advertise == Advertise::Devices {
            names.clone().in_units(Memory::mib(self.memory_unit.get().into())).map_err(ConfigError::UnitName)?;
        }
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = claim_resources(&names).into_iter().find(|name| !seen.insert(name.as_str())) {
            return Err(ConfigError::SameResource(twice.clone()));
        }
        Ok(())
    }

    /// The configuration as a file that would say the same.
    pub fn to_yaml(&self) -> String {
        let keys = serde_saphyr::to_string(self).expect("a flat struct of texts, numbers and lists always serialises");
        format!("version: v1\n{keys}")
    }

    /// The resources that claims are written in.
    pub fn resource_names(&self) -> ResourceNames {
        let names = self.amount_names();
        match self.advertise {
            Advertise::Amounts => names,
            Advertise::Devices => {
                let unit = Memory::mib(self.memory_unit.get().into());
                names.in_units(unit).expect("into_config has tried")
            }
        }
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

    /// What stands for amounts that a claim leaves out.
    pub fn claim_defaults(&self) -> Defaults {
        Defaults { memory: self.default_memory.amount(), cores: Cores::new(self.default_cores.get()) }
    }

    /// How containers are given their cards.
    pub fn delivery(&self) -> DeliveryOptions {
        DeliveryOptions {
            run_dir: self.run_dir.to_path_buf(),
            device_list_strategy: self.device_list_strategy.clone(),
            cdi_dir: self.cdi_dir.to_path_buf(),
            cdi_annotation_prefix: self.cdi_annotation_prefix.as_str().to_owned(),
            nvidia_cdi_hook_path: self.nvidia_cdi_hook_path.to_path_buf(),
            driver_root: self.driver_root.to_path_buf(),
            driver_root_ctr_path: self.driver_root_ctr_path.to_path_buf(),
            dev_root: self.dev_root.to_path_buf(),
            procfs: "/proc".into(),
        }
    }
}

#[cfg(test)]
mod tests;
