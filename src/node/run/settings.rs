//! Settings of each part, from the configuration.

use divvy_api::Tier;
use divvy_node_core::allocator::AllocationSettings;
use divvy_placement::Policy;
use divvy_runtime::api_server::ApiServer;

use crate::apiserver::PublishSettings;
use crate::apiserver::desired::Desired;
use crate::config::{Config, Switch};
use crate::kubelet::advertise::{self, Listing};
use crate::kubelet::client::KubeletEndpoint;
use crate::kubelet::tls::Trust;
use crate::nvml::{HealthOptions, InventoryOptions};

pub(super) fn allocation(config: &Config) -> AllocationSettings {
    AllocationSettings {
        node_name: config.node_name.to_string(),
        names: config.resource_names(),
        defaults: config.cluster().request_defaults(),
        policy: Policy { name: config.card_policy, seed: 0 },
        accounting_namespaces: config.accounting_namespaces.0.iter().cloned().collect(),
    }
}

pub(super) fn listing(config: &Config) -> Listing {
    Listing {
        names: config.resource_names(),
        numa_topology: config.numa_topology == Switch::On,
        advertise: config.advertise,
    }
}

pub(super) fn kubelet(config: &Config) -> KubeletEndpoint {
    KubeletEndpoint {
        url: config.kubelet_url.as_str().to_owned(),
        token_file: config.kubelet_token_file.to_path_buf(),
        trust: Trust {
            authorities: config.kubelet_ca.to_path_buf(),
            certificate: config.kubelet_certificate.to_path_buf(),
        },
        timeout: config.kubelet_timeout.get(),
    }
}

pub(super) fn inventory(config: &Config, desired: &Desired) -> InventoryOptions {
    let ignored_xids = config.ignored_xids.0.iter().map(|xid| xid.get().into()).collect();
    InventoryOptions {
        driver_root: config.driver_root.on_host(&config.host_root).to_path_buf(),
        sysfs_root: config.host_root.join("sys"),
        mig_strategy: config.mig_strategy,
        probe_interval: config.probe_interval.get(),
        probe_timeout: config.probe_timeout(),
        health: HealthOptions { ignored_xids, recover_after: config.recover_after.get() },
        released: desired.driver_release(),
    }
}

pub(super) fn publish(config: &Config, tier: Tier) -> PublishSettings {
    PublishSettings {
        node_name: config.node_name.to_string(),
        names: config.cluster().amount_names(),
        scales: config.scales(),
        writes_node: advertise::writes_node(config.advertise),
        tier,
        slots_per_card: config.slots_per_card.get(),
        utilization: config.load_aware == Switch::On,
        state_dir: config.state_dir.to_path_buf(),
    }
}

/// The API server; `None` where there is neither a cluster nor a kubeconfig.
pub(super) async fn api_server(config: &Config) -> anyhow::Result<Option<ApiServer>> {
    divvy_runtime::api_server::connect(config.kubeconfig.as_deref()).await
}
