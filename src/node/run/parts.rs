//! What the daemon is made of before any task runs: its files and containers, and those whom it asks.

use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use divvy_node_core::allocator::{Allocator, SharedAllocator};
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::Ledger;
use divvy_runtime::api_server::ApiServer;
use divvy_runtime::pages::listen;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tracing::warn;

use super::settings;
use crate::apiserver::BoundPods;
use crate::apiserver::desired::Desired;
use crate::cgroups::PodCgroups;
use crate::config::Config;
use crate::container::Containers;
use crate::container::isolation::Selection;
use crate::kubelet::age::KubeletAge;
use crate::kubelet::client::PodListClient;
use crate::kubelet::metrics::Metrics;
use crate::kubelet::pod_resources::PodResources;
use crate::pod_source::NodePods;
use crate::usage::DriverMemoryTable;

/// What the daemon has on its node: the ledger, the directories of containers, the figures that it has learned.
pub(super) struct Stores {
    pub(super) allocator: SharedAllocator,
    pub(super) containers: Arc<Containers>,
    pub(super) driver_memory: Arc<Mutex<DriverMemoryTable>>,
}

/// Whom the daemon asks, and the listeners for those who ask it.
pub(super) struct Connections {
    /// Clients of the kubelet, and of the API server where there is one.
    pub(super) source: NodePods,
    /// `None` where there is neither a cluster nor a kubeconfig.
    pub(super) api_server: Option<ApiServer>,
    pub(super) listeners: Listeners,
}

/// The addresses that the daemon serves.
pub(super) struct Listeners {
    /// `listenAddress`.
    pub(super) all: TcpListener,
    /// `adminAddress`.
    pub(super) admin: TcpListener,
}

// === impl Stores ===

impl Stores {
    /// Opens the ledger and prepares the directories for this tier.
    pub(super) fn open(config: &Config, selection: &Selection, desired: &Desired) -> anyhow::Result<Self> {
        let (ledger, replay) = Ledger::open(&config.state_dir).context("opening the ledger")?;
        replay.to_string().lines().for_each(|note| warn!("journal: {note}"));
        // Labels may be fresh from the API server, which may be away at the next start.
        desired.remember(&config.state_dir);
        let mut containers = Containers::new(config.into(), selection.install(config)?);
        if let Err(problem) = containers.bound_regions() {
            warn!("containers can fill the file system of runDir with what they write to their region: {problem}");
        }
        containers.start_removal().context("starting the removal thread")?;
        let containers = Arc::new(containers);
        let mut allocator = Allocator::new(settings::allocation(config), ledger, Arc::clone(&containers) as _);
        // What is the node's holds before NVML has answered.
        allocator.set_inventory(Arc::new(config.effective(&Inventory::default(), selection.tier)));
        allocator.renew_limits();
        let driver_memory = Arc::new(Mutex::new(DriverMemoryTable::open(&config.state_dir)));
        Ok(Self { allocator: Arc::new(Mutex::new(allocator)), containers, driver_memory })
    }
}

// === impl Connections ===

impl Connections {
    /// Binds the listeners, and makes clients of the kubelet and of the API server, both of which may be away.
    pub(super) async fn open(config: &Config, registry: &mut Registry) -> anyhow::Result<Self> {
        let kubelet = PodListClient::new(settings::kubelet(config)).context("reaching the kubelet")?;
        let all = listen("listenAddress", config.listen_address).await?;
        let admin = listen("adminAddress", config.admin_address.get()).await?;
        let api_server = settings::api_server(config).await.context("reaching the API server")?;
        let requests = api_server.as_ref().map(|api_server| api_server.requests.clone());
        let bound = api_server.clone();
        let source = NodePods {
            kubelet: kubelet.beside(requests),
            pod_resources: PodResources { socket: config.pod_resources_socket(), names: config.resource_names() },
            bound: bound.map(|server| BoundPods::new(server, &config.node_name, &config.kubelet_token_file)),
            cgroups: Arc::new(PodCgroups::new(config.cgroup_root.to_path_buf())),
            kubelet_age: KubeletAge::new(config.device_plugin_dir().join("kubelet.sock")),
            unlisted: Arc::default(),
            metrics: Arc::new(Metrics::register(registry)),
        };
        Ok(Self { source, api_server, listeners: Listeners { all, admin } })
    }
}
