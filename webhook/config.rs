//! The configuration of divvy-webhook: every key once, and what the keys must agree on. `divvy_runtime::settings` says how they
//! are written and which source wins.
//!
//! From resourceCount to nominationTimeoutSeconds they are those of the cluster's configuration, which daemons share.

mod tls_address;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use divvy_api::config::ClusterConfigError;
use divvy_api::installation;
use divvy_index::demand::SchedulingConfig;
use divvy_runtime::settings::{
    AbsolutePath, ConfigError, KeySet as _, List, LogFilter, LogFormat, LoopbackAddress, ObjectName, Period, Switch,
    Within,
};
use divvy_systems::Dialect;
use serde::{Deserialize, Serialize};

use crate::admission::ConflictingVariables;
use crate::aggregated_api::AggregatedApiMode;

pub use tls_address::{Listener, TlsAddress};

divvy_runtime::keys! {
    file {
        /// Refused: `scheduling` replaces it.
        extender: Replaced,
    }
    required {
        /// Name of this pod, its holder identity in the Lease; in a pod from metadata.name
        pod_name: ObjectName,
        /// IP address of this pod, the endpoint of the Service divvy-extender while it leads; in a pod from status.podIP
        pod_ip: IpAddr,
        /// Namespace of this pod, its Services, its Secret and its Lease; in a pod from metadata.namespace
        namespace: ObjectName,
    }
    include [divvy_api::gpu_keys, divvy_api::node_keys]

    /// Whether the leader evicts pods of lower priority for a pod that fits nowhere, with gates: on or off
    preemption: Switch = Switch::On,
    /// Most nodes that the extender's filter returns, the best ones: 1 to 5000; 0 for all that fit
    shortlist: Within<0, 5000> = Within::new(16),
    /// Whether nodes with free GPUs get taints of effect PreferNoSchedule, which pods that request GPUs tolerate: on or off; other pods then leave the CPU beside free GPUs to pods that need it. When off, the taints are removed
    soft_taints: Switch = Switch::On,
    /// Other systems whose words are translated in new pods, such as hami or gpushare; a map of name and settings in the file
    dialects: List<Dialect> = List(Vec::new()),
    /// Schedulers of such systems and those that get their translated pods instead, such as hami-scheduler=default-scheduler
    rewrite_schedulers: List<SchedulerRewrite> = List(Vec::new()),
    /// What becomes of variables that select GPUs, or load code ahead of libdivvy: override or refuse; with override the limits decide which GPUs a container sees, and its author is warned
    conflicting_variables: ConflictingVariables = ConflictingVariables::default(),
    /// Namespaces whose pods may use the annotations compute: burst, compute-limit, priority: high and oversubscribe: true; "*" for all
    favoured_namespaces: List<Namespace> = List(Vec::new()),

    /// Whether the aggregated API metrics.nvidia.com/v1alpha1 of nvidia-gpu-scheduler is served, podresources and gpuinfos: off, on, or legacy-watch, where a watch of podresources without other parameters than watch=true is answered in that system's form, lines of "Type" and "Object". Needs the roles and the APIService of deploy/aggregated-api
    aggregated_api: AggregatedApiMode = AggregatedApiMode::default(),

    /// Directory with tls.crt and tls.key, certificate chain and private key in PEM, kept by a program such as cert-manager; unless set, the webhook issues its own certificate
    certificate_dir: AbsolutePath,
    /// Whether any client may call the extender, and bind pods through it: on or off; when off, clients need the certificate that the webhook issues, client.crt of the Secret divvy-webhook-tls
    allow_unauthenticated_scheduler: Switch = Switch::Off,

    /// Address of the TLS listener of admission reviews. The next ports are those of the extender, of explanations (/explain and /inspect) and of the aggregated API, as far as they are served
    listen_address: TlsAddress = TlsAddress::default(),
    /// Address of the plain-HTTP listener: /metrics, /healthz and /readyz
    metrics_address: SocketAddr = (Ipv4Addr::UNSPECIFIED, installation::WEBHOOK_METRICS_PORT).into(),
    /// Loopback address of /config and /debug, reached with kubectl port-forward
    admin_address: LoopbackAddress = LoopbackAddress::port(installation::ADMIN_PORT),
    /// How long new calls are still answered after SIGTERM, while the Services' endpoints are updated
    shutdown_delay: Period = Period::seconds(5),
    /// Longest wait for running calls after shutdownDelay; watches of the aggregated API end at once
    drain_timeout: Period = Period::seconds(20),
    /// Kubeconfig of the API server, unless the webhook runs as a pod of its cluster
    kubeconfig: AbsolutePath,
    /// Log levels by target, such as info,divvy_webhook=debug
    log_level: LogFilter = LogFilter::default(),
    /// Log format: plain or json
    log_format: LogFormat = LogFormat::default(),
}

/// The key `extender`, which files of earlier versions have: an error that names `scheduling`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub struct Replaced;

/// A namespace of `favouredNamespaces`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Namespace {
    /// `*`.
    Any,
    /// This one.
    Named(ObjectName),
}

/// An entry of `rewriteSchedulers`: `from=to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SchedulerRewrite {
    /// `spec.schedulerName` as written.
    pub from: String,
    /// What it becomes.
    pub to: String,
}

/// The scheduler's name in its certificate.
pub const SCHEDULER: &str = "divvy-scheduler";

// === impl Keys ===

impl Keys {
    /// The configuration that the keys make: absent ones take their defaults, and what must agree is compared.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let config = self.resolve()?;
        let names = config.scheduling_config()?.names;
        divvy_systems::check(&config.dialects.0, &names).map_err(ConfigError::Disagreement)?;
        Ok(config)
    }
}

// === impl Replaced ===

impl TryFrom<String> for Replaced {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let instead = if text == "on" { "extender" } else { "gates or node" };
        Err(format!(
            "the key is gone: set scheduling: {instead} in the cluster's configuration instead of extender: {text}"
        ))
    }
}

// === impl Namespace ===

impl TryFrom<String> for Namespace {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "*" { Ok(Self::Any) } else { ObjectName::try_from(text).map(Self::Named) }
    }
}

impl From<Namespace> for String {
    fn from(namespace: Namespace) -> Self {
        match namespace {
            Namespace::Any => "*".to_owned(),
            Namespace::Named(name) => name.to_string(),
        }
    }
}

// === impl SchedulerRewrite ===

impl TryFrom<String> for SchedulerRewrite {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (from, to) = text.split_once('=').unwrap_or_default();
        let [from, to] = [from, to].map(str::trim);
        if from.is_empty() || to.is_empty() {
            return Err(format!(
                "\"{text}\" is no pair of schedulers: expected such as hami-scheduler=default-scheduler"
            ));
        }
        Ok(Self { from: from.to_owned(), to: to.to_owned() })
    }
}

impl From<SchedulerRewrite> for String {
    fn from(rewrite: SchedulerRewrite) -> Self {
        format!("{}={}", rewrite.from, rewrite.to)
    }
}

// === impl Config ===

impl Config {
    /// How pods are read and compared, by the keys that the cluster's parts share.
    pub fn scheduling_config(&self) -> Result<SchedulingConfig, ClusterConfigError> {
        SchedulingConfig::try_from(&self.cluster())
    }
}

#[cfg(test)]
mod tests;
