//! The configuration of divvy-webhook: every key once, and what the keys must agree on. `divvy_runtime::settings` says how they
//! are written and which source wins.
//!
//! From resourceCount to policySeed they mean what they mean to divvy-node. What is promised here is what nodes do, so
//! they have to be the same there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use divvy_api::ResourceNames;
use divvy_api::annotation::PolicyName;
use divvy_api::names::ResourceName;
use divvy_api::quantity::{Cores, Memory};
use divvy_api::request::Defaults;
use divvy_runtime::settings::{
    AbsolutePath, Advertise, ConfigError, DefaultMemory, KeySet as _, List, LogFilter, LogFormat, ObjectName, Period,
    Switch, Within,
};

divvy_runtime::keys! {
    required {
        /// Name of this pod, by which it holds the lease; in a pod from metadata.name
        pod_name: ObjectName,
        /// Address of this pod, at which other replicas reach it; in a pod from status.podIP
        pod_ip: IpAddr,
        /// Namespace of this pod, its Service, its Secret and its Lease; in a pod from metadata.namespace
        namespace: ObjectName,
    }

    /// Extended resource that counts cards
    resource_count: ResourceName = ResourceNames::default().count,
    /// Extended resource for memory of each card, in MiB
    resource_memory: ResourceName = ResourceNames::default().memory,
    /// Extended resource for memory of each card, in percent
    resource_memory_percentage: ResourceName = ResourceNames::default().memory_percentage,
    /// Extended resource for compute of each card, in percent
    resource_cores: ResourceName = ResourceNames::default().cores,
    /// How memory and compute reach the scheduler: amounts in the Node's status, or devices, a unit each
    advertise: Advertise = Advertise::default(),
    /// With devices, a unit of memory in MiB: 16 to 16384; it is part of the resource's name
    memory_unit: Within<16, 16384> = Within::new(256),
    /// Most containers that can share a card: 1 to 256
    slots_per_card: Within<1, 256> = Within::new(32),
    /// Memory of a request that names cores alone: same-as-cores, a percentage such as 25%, or an amount such as 4Gi
    default_memory: DefaultMemory = DefaultMemory::SameAsCores,
    /// Cores of a request that names memory alone: 0 to 99
    default_cores: Within<0, 99> = Within::new(0),
    /// Which cards a pod gets: binpack, spread, random, least-fragmentation or topology
    card_policy: PolicyName = PolicyName::default(),
    /// Seed of the policy random
    policy_seed: Within<0, { u32::MAX }> = Within::new(0),

    /// Which node a pod gets, by the same policies; unless set, as cardPolicy
    node_policy: PolicyName = card_policy,
    /// Whether cards that are busier than promised come after others: on or off; takes divvy-node's publishUtilization
    load_aware: Switch = Switch::default(),
    /// Most nodes that the scheduler may choose from, the best ones: 1 to 5000; 0 for all that fit
    shortlist: Within<0, 5000> = Within::new(16),
    /// Whether a scheduler calls the extender: on or off; with off pods prefer the nodes of their hints by affinity
    extender: Switch = Switch::On,
    /// Namespaces whose pods may use the annotations compute, priority and oversubscribe; all if none is named
    favoured_namespaces: List<ObjectName> = List(Vec::new()),
    /// How long a reservation waits for the API server's word that the pod is bound
    bound_within: Period = Period::seconds(30),
    /// How long a bound pod's reservation waits for its node's report
    reported_within: Period = Period::seconds(600),

    /// Service at which API server and scheduler find us; part of the certificate's names
    service_name: ObjectName = ObjectName::new("divvy-webhook"),
    /// Name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration whose caBundle is kept
    webhook_configuration: ObjectName = ObjectName::new("divvy-webhook"),
    /// Secret of the authority and the certificate that are made here
    certificate_secret: ObjectName = ObjectName::new("divvy-webhook-tls"),
    /// Certificate chain in PEM that somebody else keeps, such as cert-manager; instead of the Secret
    certificate_file: AbsolutePath,
    /// Private key of certificateFile, in PEM
    key_file: AbsolutePath,
    /// Certificates of the authorities of schedulers; if set, the extender answers only clients with one of theirs
    scheduler_client_ca: AbsolutePath,

    /// Lease of the replica that makes reservations
    lease_name: ObjectName = ObjectName::new("divvy-webhook"),
    /// How long a lease that isn't renewed keeps other replicas out; whole seconds
    lease_duration: Period = Period::seconds(15),
    /// How long the holder tries to renew before it gives up; shorter than leaseDuration
    renew_deadline: Period = Period::seconds(10),
    /// How often the lease is asked for or renewed; shorter than renewDeadline
    retry_period: Period = Period::seconds(2),

    /// Where reviews, extender calls and explanations are served, with TLS
    listen_address: SocketAddr = (Ipv4Addr::UNSPECIFIED, 8443).into(),
    /// Where /metrics, /healthz, /readyz and /config are served
    metrics_address: SocketAddr = (Ipv4Addr::UNSPECIFIED, 9403).into(),
    /// How long new calls are still answered after SIGTERM, until nobody sends any more
    shutdown_delay: Period = Period::seconds(5),
    /// Longest wait for running calls after that
    drain_timeout: Period = Period::seconds(20),
    /// Kubeconfig of the API server, unless the webhook runs as a pod of its cluster
    kubeconfig: AbsolutePath,
    /// What is logged: levels by target, such as info,divvy_webhook=debug
    log_level: LogFilter = LogFilter::default(),
    /// How it is logged: plain or json
    log_format: LogFormat = LogFormat::default(),
}

// === impl Keys ===

impl Keys {
    /// The configuration that the keys make: absent ones take their defaults, and what must agree is compared.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let config = self.resolve()?;
        config.request_names()?;
        config.check_certificate().and_then(|()| config.check_lease()).map_err(ConfigError::Disagreement)?;
        Ok(config)
    }
}

// === impl Config ===

impl Config {
    fn check_certificate(&self) -> Result<(), String> {
        let (given, absent) = match (&self.certificate_file, &self.key_file) {
            (Some(_), None) => ("certificateFile", "keyFile"),
            (None, Some(_)) => ("keyFile", "certificateFile"),
            _ => return Ok(()),
        };
        Err(format!("{given} needs {absent}: set both, or neither for a certificate of our own"))
    }

    /// A holder that is cut off must have given up before another replica takes over.
    fn check_lease(&self) -> Result<(), String> {
        let (duration, deadline, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        if duration <= deadline || deadline <= retry {
            return Err(format!(
                "leaseDuration {duration} must be longer than renewDeadline {deadline}, and that longer than retryPeriod {retry}"
            ));
        }
        if duration.get().subsec_nanos() > 0 {
            return Err(format!("leaseDuration {duration} must be whole seconds: a Lease has no finer ones"));
        }
        Ok(())
    }

    /// The resources that requests are written in.
    pub fn resource_names(&self) -> ResourceNames {
        self.request_names().expect("into_config has tried")
    }

    fn request_names(&self) -> Result<ResourceNames, ConfigError> {
        let amounts = ResourceNames {
            count: self.resource_count.clone(),
            memory: self.resource_memory.clone(),
            memory_percentage: self.resource_memory_percentage.clone(),
            cores: self.resource_cores.clone(),
            ..ResourceNames::default()
        };
        Ok(self.advertise.request_names(amounts, Memory::mib(self.memory_unit.get().into()))?)
    }

    /// What stands for amounts that a request leaves out.
    pub fn request_defaults(&self) -> Defaults {
        Defaults { memory: self.default_memory.amount(), cores: Cores::new(self.default_cores.get()) }
    }
}

#[cfg(test)]
mod tests;
