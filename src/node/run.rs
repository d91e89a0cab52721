//! Composes the daemon: builds the parts, starts their tasks, and ends them in order.

mod drain;
mod driver;
mod inventory;
mod reconcile;
mod reload;
mod serving;
mod settings;
mod tenants;
mod uninstall;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use divvy_node_core::Daemon;
use divvy_node_core::allocator::{Allocator, lock};
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ports::ContainerSetup as _;
use divvy_runtime::logging::LogControl;
use divvy_runtime::{Next, Signals, Tasks, debug};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::driver::DriverSignals;
use self::inventory::Advertiser;
use crate::apiserver::desired::Desired;
use crate::apiserver::{BoundPods, Publisher, States};
use crate::args::{Effective, Job, Sources, Stop};
use crate::cgroups::PodCgroups;
use crate::container::clock::View;
use crate::container::isolation::{self, Need};
use crate::container::{Containers, clock};
use crate::http::{self, Pages};
use crate::kubelet::age::KubeletAge;
use crate::kubelet::client::PodListClient;
use crate::kubelet::metrics::Metrics;
use crate::kubelet::plugin::Calls;
use crate::kubelet::pod_resources::PodResources;
use crate::kubelet::registration::{Registrar, RegistrationStatus};
use crate::pod_source::NodePods;
use crate::prompt::prompts;
use crate::usage::{self, DriverMemoryTable, Watcher};
use crate::{args, nvml, token};
use divvy_node_core::ledger::Ledger;

/// Time for which a conflicting device plugin must be registered, or be gone, before the daemon reacts: NVIDIA's needs a few
/// seconds to register again with a kubelet that has restarted.
const CONFLICT_PATIENCE: Duration = Duration::from_secs(10);

/// Runs the program: exit code 0 after SIGTERM, 1 after a failure, 64 for an invalid configuration.
pub fn main() -> ExitCode {
    match launch() {
        Ok(code) => code,
        Err(stop) => ExitCode::from(stop.report()),
    }
}

fn launch() -> Result<ExitCode, Stop> {
    let sources = args::parse(std::env::args_os(), |name| std::env::var_os(name))?;
    // Few tasks that each run for microseconds: further workers would cost memory on every node and a wake-up a call.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: starting the runtime: {error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let (effective, desired) = runtime.block_on(reload::configure(&sources))?;
    let log = divvy_runtime::logging::init(&effective.config.log_level, effective.config.log_format);
    if let Job::Uninstall(what) = sources.job {
        // A closed stdout must not stop it half-way.
        let say = |line: String| drop(writeln!(std::io::stdout(), "{line}"));
        let left = runtime.block_on(uninstall::uninstall(what, &effective.config, say));
        return Ok(if left.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let tier = isolation::select(&effective.config)?;
    let result = runtime.block_on(run(sources, effective, tier, desired, log));
    // Threads that hang in a driver call can't be joined.
    runtime.shutdown_timeout(Duration::from_millis(100));
    let result = result.and_then(|next| match next {
        Next::Exit => Ok(()),
        Next::Start => Err(restart()).context("restarting with the new configuration"),
    });
    Ok(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

/// Executes the program again, with the same flags and environment in the same process: neither container nor unit restarts, so
/// no back-off delays it. Returns only if that fails.
fn restart() -> std::io::Error {
    let mut args = std::env::args_os();
    let mut program = Command::new("/proc/self/exe");
    args.next().map(|name| program.arg0(name));
    program.args(args).exec()
}

/// Runs until SIGTERM or SIGINT, until the configuration has changed, or until a part fails.
#[expect(clippy::too_many_lines, reason = "one flat composition of all parts")]
async fn run(
    sources: Sources,
    effective: Effective,
    selection: isolation::Selection,
    desired: Desired,
    log: LogControl,
) -> anyhow::Result<Next> {
    let config = effective.config.clone();
    info!(version = env!("CARGO_PKG_VERSION"), node = &*config.node_name, "starting divvy-node");
    effective.to_yaml().lines().for_each(|line| info!("config: {line}"));
    let (tier, in_effect) = (selection.tier, selection.to_string());
    info!("isolation tier: {in_effect}");
    let signals = Signals::new().context("listening for signals")?;
    let driver_signals = DriverSignals::new().context("listening for signals")?;
    let stop = CancellationToken::new();

    let (ledger, replay) = Ledger::open(&config.state_dir).context("opening the ledger")?;
    replay.to_string().lines().for_each(|note| warn!("journal: {note}"));
    // Labels may be fresh from the API server, which may be away at the next start.
    desired.remember(&config.state_dir);
    let mut containers = Containers::new((&config).into(), selection.install(&config)?);
    if let Err(problem) = containers.bound_regions() {
        warn!("containers can fill the file system of runDir with what they write to their region: {problem}");
    }
    containers.start_removal().context("starting the removal thread")?;
    let containers = Arc::new(containers);
    let mut allocator = Allocator::new(settings::allocation(&config), ledger, Arc::clone(&containers) as _);
    // What is the node's holds before NVML has answered.
    allocator.set_inventory(Arc::new(config.effective(&Inventory::default(), tier)));
    allocator.renew_limits();
    let allocator = Arc::new(Mutex::new(allocator));
    let pods = PodListClient::new(settings::kubelet(&config)).context("reaching the kubelet")?;
    let pod_resources =
        PodResources { socket: config.pod_resources_socket.to_path_buf(), names: config.resource_names() };
    let listener = TcpListener::bind(config.listen_address).await;
    let listener = listener.with_context(|| format!("listenAddress {}", config.listen_address))?;
    let admin_listener = TcpListener::bind(config.admin_address.get()).await;
    let admin_listener = admin_listener.with_context(|| format!("adminAddress {}", config.admin_address))?;
    let (inventory, inventory_threads) = nvml::watch(settings::inventory(&config, &desired));
    let (desired_sender, desired) = watch::channel(desired);
    let (offers_sender, offers) = watch::channel(Arc::new(Vec::new()));
    let (registration_sender, registration) = watch::channel(RegistrationStatus::default());
    let (shown_sender, shown) = watch::channel(reload::shown(&effective, &in_effect));
    let (serving_sender, serving) = watch::channel(None);
    let doubt = Arc::new(Notify::new());
    let node: &str = &config.node_name;
    let cgroups = config.cgroup_root.to_path_buf();
    let (shared, cards) = (Arc::clone(&allocator), inventory.clone());
    let driver_memory = Arc::new(Mutex::new(DriverMemoryTable::open(&config.state_dir)));
    let (table, interval) = (Arc::clone(&driver_memory), config.probe_interval.get());
    let (watcher, usage) = Watcher::new(node, &config.run_dir, cgroups, shared, cards, interval, table);
    let mut registry = Registry::default();
    let divvy = registry.sub_registry_with_prefix("divvy");
    let metrics = Arc::new(Metrics::register(divvy));
    let gauges = Arc::clone(&containers);
    http::metrics::register(
        divvy,
        Arc::clone(&allocator),
        gauges,
        http::metrics::States { registration: registration.clone(), serving: serving.clone(), config: shown.clone() },
        inventory_threads.readings(),
        usage.clone(),
    );

    let api_server = settings::api_server(&config).await.context("reaching the API server")?;
    let requests = api_server.as_ref().map(|api_server| api_server.requests.clone());
    let unlisted = Arc::default();
    let source = NodePods {
        kubelet: pods.beside(requests.clone()),
        pod_resources: pod_resources.clone(),
        bound: api_server.clone().map(|api_server| BoundPods::new(api_server, node, &config.kubelet_token_file)),
        cgroups: Arc::new(PodCgroups::new(config.cgroup_root.to_path_buf())),
        kubelet_age: KubeletAge::new(config.device_plugin_dir.join("kubelet.sock")),
        unlisted: Arc::clone(&unlisted),
        metrics: Arc::clone(&metrics),
    };
    let daemon = Arc::new(Daemon::new(Arc::clone(&allocator), source, config.kubelet_settle_time.get()));
    let ledger_changed = Arc::new(Notify::new());
    let (prompter, prompts) = prompts();
    let calls = Calls {
        daemon: Arc::clone(&daemon),
        ledger_changed: Arc::clone(&ledger_changed),
        doubt: Arc::clone(&doubt),
        node: api_server.is_some().then_some(prompter),
        metrics,
    };
    let registrar = Registrar {
        directory: config.device_plugin_dir.to_path_buf(),
        calls,
        offers: offers.clone(),
        pod_resources,
        patience: CONFLICT_PATIENCE,
        status: registration_sender,
    };
    let pages = Pages {
        registry,
        allocator: Arc::clone(&allocator),
        registration: registration.clone(),
        serving: serving.clone(),
        unlisted,
        usage: usage.clone(),
        config: shown,
        containers: Arc::clone(&containers),
        desired: desired.clone(),
    };
    let mut tasks = Tasks::default();
    let [router, admin_router] = http::routers(pages, log, tasks.list(), stop.clone());
    let advertiser = Advertiser {
        allocator: Arc::clone(&allocator),
        listing: settings::listing(&config),
        offers: offers_sender,
        serving: serving.clone(),
    };

    // Where the driver divides the cards there may still be containers that were made for the shim.
    if isolation::needs(tier, Need::Library) {
        let (shared, mut cards) = (Arc::clone(&allocator), inventory.clone());
        let mut published = None;
        let view = move |known| {
            let table = || driver_memory.lock().unwrap_or_else(PoisonError::into_inner);
            // Figures that change after this are news the next time.
            let revision = table().revision();
            let is_news = published != Some(revision) || cards.has_changed().unwrap_or(false);
            // No ledger has this revision.
            let view = tenants::tenants(&lock(&shared), if is_news { u64::MAX } else { known })?;
            published = Some(revision);
            Some(View { driver_memory: table().of_cards(&cards.borrow_and_update()), ..view })
        };
        clock::start(config.run_dir.to_path_buf(), view, stop.clone()).context("starting the clock thread")?;
    }
    let driver = inventory_threads.driver();
    tasks.spawn("driver", driver::follow(desired.clone(), driver_signals, driver, stop.clone()));
    tasks.spawn(
        "inventory",
        inventory::follow(
            inventory.clone(),
            desired.clone(),
            Arc::clone(&containers),
            config.clone(),
            advertiser.clone(),
            stop.clone(),
        ),
    );
    tasks.spawn("listing", inventory::relist(advertiser.clone(), Arc::clone(&ledger_changed), stop.clone()));
    tasks.spawn(
        "registration",
        inventory::register(registrar, inventory, advertiser, serving_sender.clone(), stop.clone()),
    );
    let interval = config.release_interval.get();
    tasks.spawn(
        "reconcile",
        reconcile::watch(Arc::clone(&daemon), [ledger_changed, Arc::clone(&doubt)], interval, stop.clone()),
    );
    tasks.spawn(
        "serving",
        serving::watch(Arc::clone(&daemon), doubt, registration.clone(), serving_sender, stop.clone()),
    );
    tasks.spawn("usage", usage::watch(watcher, stop.clone()));
    if isolation::needs(tier, Need::Service) {
        let problem = move || containers.problem();
        tasks.spawn("tier", isolation::watch(problem, stop.clone()));
    }
    tasks.spawn("http", http::serve(listener, router, stop.clone()));
    tasks.spawn("admin", debug::serve(admin_listener, admin_router, stop.clone()));
    let mut announcement = None;
    if let Some(api_server) = api_server {
        let (publisher, draining) = Publisher::new(
            settings::publish(&config, tier),
            api_server,
            allocator,
            States { registration, offers, serving, usage },
            desired_sender,
            prompts,
        );
        tasks.spawn("publisher", publisher.run(stop.clone()));
        announcement = Some(draining);
    } else {
        info!("neither in a cluster nor given a kubeconfig: not publishing to an API server");
    }
    let changed = Box::pin(reload::changed(sources, effective, in_effect, desired, shown_sender));
    let outgrown = Box::pin(isolation::outgrown(&config, tier));
    let reconfigured = async {
        tokio::select! { () = changed => {}, () = outgrown => {} }
    };
    let patience = config.drain_timeout.get();
    let retire = async {
        if tokio::time::timeout(patience, drain::drain(&daemon, announcement)).await.is_err() {
            warn!(timeout = ?patience, "stopping although pods are still waiting for GPUs");
        }
        stop.cancel();
    };
    // Without an orderly end: with a token that nobody accepts no pod can be served.
    let result = tokio::select! {
        result = tasks.until_over(signals, reconfigured, retire, patience) => result,
        error = token::rejected(requests, &config.kubelet_token_file) => Err(error),
    };
    inventory_threads.stop();
    result
}
