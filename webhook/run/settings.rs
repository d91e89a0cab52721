//! What the keys mean to the parts.

use std::net::SocketAddr;

use anyhow::Context as _;
use divvy_api::config::Scheduling;
use divvy_api::installation::WEBHOOK;
use divvy_index::demand::SchedulingConfig;
use divvy_runtime::api_server::ApiServer;
use divvy_runtime::settings::{Advertise, Switch};

use crate::admission::{FavouredNamespaces, Settings};
use crate::aggregated_api::AggregatedApiMode;
use crate::config::{Config, Listener, Namespace, SCHEDULER};
use crate::lease::{Candidate, Timing};
use crate::tls::{Files, Service};

/// The API server.
pub(super) async fn api_server(config: &Config) -> anyhow::Result<ApiServer> {
    let api_server = divvy_runtime::api_server::connect(config.kubeconfig.as_deref()).await?;
    api_server.context(
        "no kubeconfig is set, and this is not a pod of a cluster: set --kubeconfig, the environment variable KUBECONFIG \
         or kubeconfig in the file",
    )
}

/// How pods are read and compared.
pub(super) fn reading(config: &Config) -> SchedulingConfig {
    let reading = config.scheduling_config().expect("into_config has tried");
    SchedulingConfig { preempts: config.preemption == Switch::On, ..reading }
}

/// How pods are admitted.
pub(super) fn admission(config: &Config) -> Settings {
    let SchedulingConfig { names, defaults, planned, .. } = reading(config);
    let rewrites = config.rewrite_schedulers.0.iter();
    Settings {
        names,
        defaults,
        favoured_namespaces: favoured(&config.favoured_namespaces.0),
        tolerate_soft_taints: config.soft_taints == Switch::On,
        prefer_hinted_nodes: config.scheduling == Scheduling::Node,
        planned,
        whole_gpus_have_amounts: config.scheduling != Scheduling::Extender && config.advertise == Advertise::Amounts,
        dialects: config.dialects.0.clone(),
        rewrite_schedulers: rewrites.map(|rewrite| (rewrite.from.clone(), rewrite.to.clone())).collect(),
        conflicting_variables: config.conflicting_variables,
    }
}

fn favoured(namespaces: &[Namespace]) -> FavouredNamespaces {
    let named = namespaces.iter().map(|namespace| match namespace {
        Namespace::Any => None,
        Namespace::Named(name) => Some(name.to_string()),
    });
    named.collect::<Option<_>>().map_or(FavouredNamespaces::All, FavouredNamespaces::Named)
}

/// What clients call us.
pub(super) fn service(config: &Config) -> Service {
    Service { name: WEBHOOK.to_owned(), namespace: config.namespace.to_string(), client: SCHEDULER }
}

/// A certificate that somebody else keeps.
pub(super) fn certificate_files(config: &Config) -> Option<Files> {
    let directory = config.certificate_dir.as_ref()?;
    Some(Files { certificate: directory.join("tls.crt"), key: directory.join("tls.key") })
}

/// Where the Service of the extender reaches this replica.
pub(super) fn address(config: &Config) -> SocketAddr {
    SocketAddr::new(config.pod_ip, config.listen_address.listener(Listener::Extender).port())
}

/// Where the extender listens, if kube-scheduler calls it.
pub(super) fn extender_address(config: &Config) -> Option<SocketAddr> {
    (config.scheduling == Scheduling::Extender).then(|| config.listen_address.listener(Listener::Extender))
}

/// Where the aggregated API listens, if it is served.
pub(super) fn aggregated_api_address(config: &Config) -> Option<SocketAddr> {
    (config.aggregated_api != AggregatedApiMode::Off).then(|| config.listen_address.listener(Listener::AggregatedApi))
}

/// This replica in the leader election.
pub(super) fn candidate(config: &Config) -> Candidate {
    Candidate { identity: config.pod_name.to_string(), timing: Timing::default() }
}

#[cfg(test)]
mod tests {
    use divvy_api::annotation::PolicyName;
    use divvy_runtime::settings::KeySet as _;

    use super::*;
    use crate::config::Keys;

    #[test]
    fn card_policy_and_node_policy_are_independent() {
        let names = |policies: &[(&str, &str)]| {
            let pod = [("POD_NAME", "divvy-webhook-0"), ("POD_IP", "10.0.0.7"), ("NAMESPACE", "divvy-system")];
            let given =
                |name: &str| policies.iter().chain(&pod).find(|(key, _)| *key == name).map(|(_, text)| text.into());
            let config = Keys::from_env(given).and_then(Keys::into_config).expect("valid");
            let SchedulingConfig { card_policy, node_policy, .. } = reading(&config);
            (card_policy, node_policy)
        };
        assert_eq!(names(&[("CARD_POLICY", "spread")]), (PolicyName::Spread, PolicyName::Spread));
        let both = [("CARD_POLICY", "spread"), ("NODE_POLICY", "binpack")];
        assert_eq!(names(&both), (PolicyName::Spread, PolicyName::Binpack));
    }
}
