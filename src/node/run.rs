//! Composes the daemon: builds the parts, starts their tasks, and ends them in order.

mod drain;
mod driver;
mod inventory;
mod parts;
mod reconcile;
mod reload;
mod serving;
mod settings;
mod tasks;
mod tenants;
mod uninstall;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use divvy_node_core::Daemon;
use divvy_runtime::logging::LogControl;
use divvy_runtime::{Next, Signals, Tasks};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::driver::DriverSignals;
use self::parts::{Connections, Stores};
use self::tasks::{Channels, Parts};
use crate::apiserver::desired::Desired;
use crate::args::{Effective, Job, Sources, Stop};
use crate::container::isolation;
use crate::{args, nvml, token};

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

    let stores = Stores::open(&config, &selection, &desired)?;
    let mut registry = Registry::with_prefix("divvy");
    let Connections { source, api_server, listeners } = Connections::open(&config, &mut registry).await?;
    let requests = api_server.as_ref().map(|api_server| api_server.requests.clone());
    let daemon = Daemon::new(Arc::clone(&stores.allocator), source, config.kubelet_settle_time.get());
    let daemon = Arc::new(daemon);
    let (inventory, gpus) = nvml::watch(settings::inventory(&config, &desired));
    let channels = Channels::new(desired, reload::shown(&effective, &in_effect));
    let (desired, shown) = (channels.desired.subscribe(), channels.shown.clone());
    let parts = Parts {
        config: config.clone(),
        tier,
        stores,
        daemon: Arc::clone(&daemon),
        api_server,
        inventory,
        channels,
        stop: stop.clone(),
    };
    let mut tasks = Tasks::default();
    let announcement = parts.spawn(&mut tasks, listeners, registry, &gpus, driver_signals, log)?;

    let changed = Box::pin(reload::changed(sources, effective, in_effect, desired, shown));
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
    gpus.stop();
    result
}
