//! Composes the daemon: builds the parts, starts their tasks, and ends them in order.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use divvy_placement::Policy;
use divvy_proto::deviceplugin as api;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::allocation::{AllocationSettings, Allocator};
use crate::config::Config;
use crate::delivery::{DeliveredCard, Delivery};
use crate::http::{self, Pages};
use crate::inventory::{self, HealthOptions, Inventory, InventoryOptions};
use crate::kubelet::advertise;
use crate::kubelet::client::{KubeletEndpoint, PodListClient};
use crate::kubelet::plugin::{PluginParts, SharedAllocator, lock};
use crate::kubelet::pod_resources::PodResources;
use crate::kubelet::registration::Registrar;
use crate::kubelet::tls::Trust;
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::{args, logging, observer};

/// Where a pod finds the authorities of its cluster, which have signed the kubelet's certificate if it has `serverTLSBootstrap`.
const CLUSTER_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The whole program: exit code 0 after SIGTERM, 1 after a failure, 64 for bad configuration.
pub fn main() -> ExitCode {
    let config = match args::parse(std::env::args_os(), |name| std::env::var_os(name)) {
        Ok(config) => config,
        Err(stop) => return ExitCode::from(stop.report()),
    };
    logging::init(&config);
    // Few tasks that each run for microseconds: further workers would cost memory on every node and a wake-up a call.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.context("starting the runtime").and_then(|runtime| {
        let result = runtime.block_on(run(config));
        // Threads that hang in a driver call can't be joined.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs until SIGTERM or SIGINT, or until a part fails.
async fn run(config: Config) -> anyhow::Result<()> {
    info!(version = env!("CARGO_PKG_VERSION"), node = config.node_name.as_str(), "divvy-node starts");
    config.to_yaml().lines().for_each(|line| info!("config: {line}"));
    let signals = Signals::new().context("listening for signals")?;
    let stop = CancellationToken::new();

    let (ledger, recovery) = Ledger::open(&config.state_dir).context("opening the ledger")?;
    recovery.to_string().lines().for_each(|note| warn!("journal: {note}"));
    let delivery = Delivery::new(config.delivery());
    let allocator = Arc::new(Mutex::new(Allocator::new(allocation_settings(&config), ledger, delivery)));
    let pods = PodListClient::new(kubelet_endpoint(&config)).context("reaching the kubelet")?;
    let pod_resources =
        PodResources { socket: config.pod_resources_socket.to_path_buf(), resource: config.resource_count.clone() };
    let listener = TcpListener::bind(config.listen_address).await;
    let listener = listener.with_context(|| format!("listenAddress {}", config.listen_address))?;
    let (inventory, inventory_threads) = inventory::watch(inventory_options(&config));
    let (devices_sender, devices) = watch::channel(Arc::new(Vec::new()));
    let (registered_sender, registered) = watch::channel(false);
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry, &allocator, &registered));

    let parts = PluginParts {
        allocator: Arc::clone(&allocator),
        pods: Arc::new(pods),
        kubelet_socket: config.device_plugin_dir.join("kubelet.sock"),
        kubelet_settle_time: config.kubelet_settle_time.get(),
        pod_resources,
        devices,
        metrics,
    };
    let registrar = Registrar {
        directory: config.device_plugin_dir.to_path_buf(),
        resource: config.resource_count.clone(),
        parts: parts.clone(),
        registered: registered_sender,
    };
    let pages = Pages { registry, allocator: Arc::clone(&allocator), registered, config: config.to_yaml() };

    let advertiser = Advertiser { allocator, slots_per_card: config.slots_per_card.get(), devices: devices_sender };
    let mut tasks = Tasks::default();
    tasks.spawn("inventory", follow_inventory(inventory.clone(), advertiser.clone(), stop.clone()));
    tasks.spawn("registration", register(registrar, inventory, advertiser, stop.clone()));
    tasks.spawn("observer", observer::watch(parts, config.release_interval.get(), stop.clone()));
    tasks.spawn("http", http::serve(listener, pages, stop.clone()));
    let result = tasks.until_over(signals, &stop, config.drain_timeout.get()).await;
    inventory_threads.stop();
    result
}

fn allocation_settings(config: &Config) -> AllocationSettings {
    AllocationSettings {
        node_name: config.node_name.as_str().to_owned(),
        names: config.resource_names(),
        defaults: config.claim_defaults(),
        slots_per_card: config.slots_per_card.get(),
        memory_scale: config.memory_scale.percent(),
        cores_scale: config.cores_scale.percent(),
        policy: Policy { name: config.card_policy, seed: config.policy_seed.get().into(), ..Policy::default() },
        tier: config.tier.get(),
    }
}

fn kubelet_endpoint(config: &Config) -> KubeletEndpoint {
    let trust = match (&config.kubelet_certificate, &config.kubelet_ca) {
        (Some(certificate), _) => Trust::Pinned(certificate.to_path_buf()),
        (None, Some(authorities)) => Trust::Authorities(authorities.to_path_buf()),
        (None, None) => Trust::Authorities(CLUSTER_CA.into()),
    };
    KubeletEndpoint {
        url: config.kubelet_url.as_str().to_owned(),
        token_file: config.kubelet_token_file.to_path_buf(),
        trust,
        timeout: config.kubelet_timeout.get(),
    }
}

fn inventory_options(config: &Config) -> InventoryOptions {
    let ignored_xids = config.ignored_xids.0.iter().map(|xid| xid.get().into()).collect();
    InventoryOptions {
        nvml_library: config.nvml_library.clone(),
        sysfs_root: config.sysfs_root.to_path_buf(),
        probe_interval: config.probe_interval.get(),
        probe_timeout: config.probe_timeout.get(),
        health: HealthOptions { ignored_xids, recover_after: config.recover_after.get() },
    }
}

/// Hands every change of the inventory to whoever decides and to whoever advertises.
async fn follow_inventory(
    mut inventory: watch::Receiver<Arc<Inventory>>,
    advertiser: Advertiser,
    stop: CancellationToken,
) {
    let delivery = Arc::clone(lock(&advertiser.allocator).delivery());
    let mut known = None;
    loop {
        let seen = Arc::clone(&inventory.borrow_and_update());
        lock(&advertiser.allocator).set_inventory(Arc::clone(&seen));
        // Looks for the driver's files: too much to do with the allocator locked.
        if let Err(error) = delivery.publish_cards(&delivered(&seen)) {
            warn!("{error}");
        }
        let strategies = delivery.strategies();
        if known.as_ref() != Some(&strategies) {
            info!(active = ?strategies.active, bypassable = strategies.bypassable, "cards are delivered: {}", strategies.reason);
            known = Some(strategies);
        }
        advertiser.update();
        tokio::select! {
            changed = inventory.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

fn delivered(inventory: &Inventory) -> Vec<DeliveredCard> {
    inventory.cards.iter().map(|card| DeliveredCard { id: card.id.clone(), minor: card.minor }).collect()
}

/// Registers once the cards are known and the books agree with the kubelet, not before: nothing is promised on a guess.
async fn register(
    registrar: Registrar,
    mut inventory: watch::Receiver<Arc<Inventory>>,
    advertiser: Advertiser,
    stop: CancellationToken,
) {
    tokio::select! {
        known = inventory.wait_for(|inventory| inventory.driver.is_some()) => if known.is_err() { return },
        () = stop.cancelled() => return,
    }
    observer::recover(&registrar.parts, &stop).await;
    // What was restored may hold slots of cards that don't answer.
    advertiser.update();
    registrar.run(stop).await;
}

/// Tells the sessions with the kubelet which slots there are.
#[derive(Clone)]
struct Advertiser {
    allocator: SharedAllocator,
    slots_per_card: u32,
    devices: watch::Sender<Arc<Vec<api::Device>>>,
}

impl Advertiser {
    fn update(&self) {
        let list = {
            let allocator = lock(&self.allocator);
            advertise::devices(allocator.inventory(), allocator.ledger().book(), self.slots_per_card)
        };
        self.devices.send_if_modified(|known| (**known != list).then(|| *known = Arc::new(list)).is_some());
    }
}

/// The daemon's tasks by name. One that ends before it was told to ends the daemon: better restarted than half alive.
#[derive(Default)]
struct Tasks(JoinSet<(&'static str, anyhow::Result<()>)>);

/// What a task may end with.
trait Outcome {
    fn outcome(self) -> anyhow::Result<()>;
}

impl Outcome for () {
    fn outcome(self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Outcome for std::io::Result<()> {
    fn outcome(self) -> anyhow::Result<()> {
        Ok(self?)
    }
}

impl Tasks {
    fn spawn<T: Outcome>(&mut self, name: &'static str, task: impl Future<Output = T> + Send + 'static) {
        self.0.spawn(async move { (name, task.await.outcome()) });
    }

    async fn until_over(
        mut self,
        mut signals: Signals,
        stop: &CancellationToken,
        drain: Duration,
    ) -> anyhow::Result<()> {
        let failed = tokio::select! {
            name = signals.next() => {
                info!(signal = name, "stopping");
                None
            }
            ended = self.0.join_next() => Some(describe(ended)),
        };
        stop.cancel();
        let drained = async { while self.0.join_next().await.is_some() {} };
        tokio::select! {
            () = drained => {}
            () = tokio::time::sleep(drain) => warn!(timeout = ?drain, "tasks didn't end in time"),
            name = signals.next() => anyhow::bail!("{name} during shutdown: aborted"),
        }
        failed.map_or(Ok(()), Err)
    }
}

fn describe(ended: Option<Result<(&'static str, anyhow::Result<()>), tokio::task::JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok((name, Err(error)))) => error.context(format!("task {name} failed")),
        Some(Ok((name, Ok(())))) => anyhow::anyhow!("task {name} ended without being told to"),
        Some(Err(error)) => anyhow::anyhow!(error).context("a task broke off"),
        None => anyhow::anyhow!("no task is left"),
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! { _ = self.terminate.recv() => "SIGTERM", _ = self.interrupt.recv() => "SIGINT" }
    }
}
