//! The daemon's tasks, and what they tell one another.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use divvy_api::Tier;
use divvy_node_core::Daemon;
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ports::ContainerSetup as _;
use divvy_node_core::serving::ServingProblem;
use divvy_runtime::api_server::ApiServer;
use divvy_runtime::program::Context;
use divvy_runtime::{Tasks, pages};
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::driver::{self, DriverSignals};
use super::inventory::{self, Advertiser};
use super::parts::{Listeners, Stores};
use super::tenants::Feed;
use super::{reconcile, serving, settings};
use crate::apiserver::desired::Desired;
use crate::apiserver::{Announcement, Publisher};
use crate::config::Config;
use crate::container::clock;
use crate::container::isolation::{self, Need};
use crate::http::{self, Pages};
use crate::kubelet::advertise::Offer;
use crate::kubelet::plugin::Calls;
use crate::kubelet::registration::{Registrar, RegistrationStatus};
use crate::nvml::InventoryHandle;
use crate::pod_source::NodePods;
use crate::prompt::{Prompter, Prompts, prompts};
use crate::states::{ConfigStatus, States};
use crate::usage::{self, Watcher};

/// Time for which a conflicting device plugin must be registered, or be gone, before the daemon reacts: NVIDIA's needs a few
/// seconds to register again with a kubelet that has restarted.
const CONFLICT_PATIENCE: Duration = Duration::from_secs(10);

/// What tasks tell one another.
#[derive(Default)]
pub(super) struct Channels {
    /// From the API server.
    pub(super) desired: watch::Sender<Desired>,
    /// Devices to be registered.
    offers: watch::Sender<Arc<Vec<Offer>>>,
    registration: watch::Sender<RegistrationStatus>,
    /// Why no pod can be served, if none can.
    serving: watch::Sender<Option<ServingProblem>>,
    /// Configuration in effect.
    pub(super) shown: watch::Sender<ConfigStatus>,
    ledger_changed: Arc<Notify>,
    /// Notified of whatever may keep pods from being served.
    doubt: Arc<Notify>,
}

/// Everything that the tasks are made of.
pub(super) struct Parts {
    pub(super) config: Config,
    pub(super) tier: Tier,
    pub(super) stores: Stores,
    pub(super) daemon: Arc<Daemon<NodePods>>,
    /// `None` where there is neither a cluster nor a kubeconfig.
    pub(super) api_server: Option<ApiServer>,
    pub(super) inventory: watch::Receiver<Arc<Inventory>>,
    pub(super) channels: Channels,
    pub(super) stop: CancellationToken,
}

// === impl Channels ===

impl Channels {
    pub(super) fn new(desired: Desired, shown: ConfigStatus) -> Self {
        Self { desired: watch::Sender::new(desired), shown: watch::Sender::new(shown), ..Self::default() }
    }
}

// === impl Parts ===

impl Parts {
    /// Starts all tasks. Returns how the cluster is told of the daemon's end, where there is an API server.
    pub(super) fn spawn(
        self,
        context: &mut Context,
        listeners: Listeners,
        mut registry: Registry,
        gpus: &InventoryHandle,
        driver_signals: DriverSignals,
    ) -> anyhow::Result<Option<Announcement>> {
        let Stores { allocator, containers, driver_memory } = &self.stores;
        let (watcher, usage) =
            Watcher::new(&self.config, Arc::clone(allocator), self.inventory.clone(), Arc::clone(driver_memory));
        let Channels { registration, offers, serving, shown, .. } = &self.channels;
        let states = States {
            registration: registration.subscribe(),
            offers: offers.subscribe(),
            serving: serving.subscribe(),
            config: shown.subscribe(),
            usage,
        };
        let allocator = Arc::clone(allocator);
        let containers = Arc::clone(containers);
        http::metrics::register(&mut registry, allocator, containers, states.clone(), gpus.readings());
        let (prompter, prompts) = prompts();
        self.start_clock()?;
        let pages = Arc::new(self.pages(registry, states.clone()));
        let shown = Arc::clone(&pages);
        context.serve_admin(listeners.admin, Arc::clone(&pages).admin_router(), move || shown.state());
        let tasks = &mut context.tasks;
        tasks.spawn("http", pages::serve("listenAddress", listeners.all, pages.router(), self.stop.clone()));
        let advertiser = self.follow_gpus(tasks, gpus, driver_signals);
        self.serve_kubelet(tasks, prompter, advertiser);
        self.watch_containers(tasks, watcher);
        Ok(self.publish(tasks, states, prompts))
    }

    /// Starts the thread of the clock pages, where the shim paces containers. Where the driver divides the cards there may still
    /// be containers that were made for the shim.
    fn start_clock(&self) -> anyhow::Result<()> {
        if !isolation::needs(self.tier, Need::Library) {
            return Ok(());
        }
        let Stores { allocator, driver_memory, .. } = &self.stores;
        let mut feed = Feed::new(Arc::clone(allocator), self.inventory.clone(), Arc::clone(driver_memory));
        let run_dir = self.config.run_dir.to_path_buf();
        clock::start(run_dir, move |known| feed.next(known), self.stop.clone()).context("starting the clock thread")
    }

    /// Starts what follows the driver, its GPUs and what pods hold of them. Returns what updates the device lists.
    fn follow_gpus(&self, tasks: &mut Tasks, gpus: &InventoryHandle, driver_signals: DriverSignals) -> Advertiser {
        let Self { config, stores, channels, stop, .. } = self;
        let advertiser = Advertiser {
            allocator: Arc::clone(&stores.allocator),
            listing: settings::listing(config),
            offers: channels.offers.clone(),
            serving: channels.serving.subscribe(),
        };
        let desired = channels.desired.subscribe();
        tasks.spawn("driver", driver::follow(desired.clone(), driver_signals, gpus.driver(), stop.clone()));
        let inventory = self.inventory.clone();
        let containers = Arc::clone(&stores.containers);
        let follow =
            inventory::follow(inventory, desired, containers, config.clone(), advertiser.clone(), stop.clone());
        tasks.spawn("inventory", follow);
        let changed = Arc::clone(&channels.ledger_changed);
        tasks.spawn("listing", inventory::relist(advertiser.clone(), changed, stop.clone()));
        advertiser
    }

    /// Starts the registration with the kubelet, and what keeps the ledger in line with it.
    fn serve_kubelet(&self, tasks: &mut Tasks, prompter: Prompter, advertiser: Advertiser) {
        let Self { config, daemon, channels, stop, .. } = self;
        let calls = Calls {
            daemon: Arc::clone(daemon),
            ledger_changed: Arc::clone(&channels.ledger_changed),
            doubt: Arc::clone(&channels.doubt),
            node: self.api_server.is_some().then_some(prompter),
            metrics: Arc::clone(&daemon.source().metrics),
        };
        let registrar = Registrar {
            directory: config.device_plugin_dir(),
            calls,
            offers: channels.offers.subscribe(),
            pod_resources: daemon.source().pod_resources.clone(),
            patience: CONFLICT_PATIENCE,
            status: channels.registration.clone(),
        };
        let serving = channels.serving.clone();
        let register =
            inventory::register(registrar, self.inventory.clone(), advertiser, serving.clone(), stop.clone());
        tasks.spawn("registration", register);
        let notified = [&channels.ledger_changed, &channels.doubt].map(Arc::clone);
        let interval = config.probe_interval.get();
        tasks.spawn("reconcile", reconcile::watch(Arc::clone(daemon), notified, interval, stop.clone()));
        let doubt = Arc::clone(&channels.doubt);
        let registration = channels.registration.subscribe();
        tasks.spawn("serving", serving::watch(Arc::clone(daemon), doubt, registration, serving, stop.clone()));
    }

    /// Starts what looks at running containers, and at what enforces their shares.
    fn watch_containers(&self, tasks: &mut Tasks, watcher: Watcher) {
        tasks.spawn("usage", usage::watch(watcher, self.stop.clone()));
        if isolation::needs(self.tier, Need::Service) {
            let containers = Arc::clone(&self.stores.containers);
            tasks.spawn("tier", isolation::watch(move || containers.problem(), self.stop.clone()));
        }
    }

    fn pages(&self, registry: Registry, states: States) -> Pages {
        Pages {
            registry: Arc::new(registry),
            allocator: Arc::clone(&self.stores.allocator),
            unlisted: Arc::clone(&self.daemon.source().unlisted),
            states,
            containers: Arc::clone(&self.stores.containers),
            desired: self.channels.desired.subscribe(),
        }
    }

    /// Starts what publishes the node's state.
    fn publish(self, tasks: &mut Tasks, states: States, prompts: Prompts) -> Option<Announcement> {
        let Self { config, tier, stores, channels, stop, .. } = self;
        let Some(api_server) = self.api_server else {
            info!("neither in a cluster nor given a kubeconfig: not publishing to an API server");
            return None;
        };
        let settings = settings::publish(&config, tier);
        let (publisher, announcement) =
            Publisher::new(settings, &api_server, stores.allocator, states, channels.desired, prompts, stop);
        tasks.spawn("publisher", publisher.run());
        Some(announcement)
    }
}
