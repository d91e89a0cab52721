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
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use divvy_node_core::Daemon;
use divvy_runtime::Next;
use divvy_runtime::program::{self, Context, Program, Workers};
use prometheus_client::registry::Registry;
use tracing::{info, warn};

use self::driver::DriverSignals;
use self::parts::{Connections, Stores};
use self::tasks::{Channels, Parts};
use crate::apiserver::desired::Desired;
use crate::args::{Effective, Job, Sources, Stop};
use crate::container::isolation;
use crate::{args, nvml, token};

/// The whole program. Its few tasks each run for microseconds.
pub fn main() -> ExitCode {
    program::main(Workers::One, launch)
}

fn launch(program: Program) -> Result<ExitCode, Stop> {
    let sources = args::parse(std::env::args_os(), |name| std::env::var_os(name))?;
    let (effective, desired) = program.block_on(reload::configure(&sources))?;
    let log = divvy_runtime::logging::init(&effective.config.log_level, effective.config.log_format);
    if let Job::Uninstall(what) = sources.job {
        // A closed stdout must not stop it half-way.
        let say = |line: String| drop(writeln!(std::io::stdout(), "{line}"));
        let left = program.block_on(uninstall::uninstall(what, &effective.config, say));
        return Ok(if left.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let tier = isolation::select(&effective.config)?;
    Ok(program.run(log, |context| run(sources, effective, tier, desired, context)))
}

/// Runs until SIGTERM or SIGINT, until the configuration has changed, or until a part fails.
async fn run(
    sources: Sources,
    effective: Effective,
    selection: isolation::Selection,
    desired: Desired,
    mut context: Context,
) -> anyhow::Result<Next> {
    let config = effective.config.clone();
    info!(version = env!("CARGO_PKG_VERSION"), node = &*config.node_name, "starting divvy-node");
    effective.to_yaml().lines().for_each(|line| info!("config: {line}"));
    let tier = selection.tier;
    let in_effect = selection.to_string();
    info!("isolation tier: {in_effect}");
    let driver_signals = DriverSignals::new().context("listening for signals")?;

    let stores = Stores::open(&config, &selection, &desired)?;
    let mut registry = Registry::with_prefix("divvy");
    let Connections { source, api_server, listeners } = Connections::open(&config, &mut registry).await?;
    let requests = api_server.as_ref().map(|api_server| api_server.requests.clone());
    let metrics = Arc::clone(&source.metrics);
    let daemon = Daemon::new(Arc::clone(&stores.allocator), source, metrics, config.kubelet_settle_time.get());
    let daemon = Arc::new(daemon);
    let (inventory, gpus) = nvml::watch(settings::inventory(&config, &desired));
    let channels = Channels::new(desired, reload::shown(&effective, &in_effect));
    let desired = channels.desired.subscribe();
    let shown = channels.shown.clone();
    let parts = Parts {
        config: config.clone(),
        tier,
        stores,
        daemon: Arc::clone(&daemon),
        api_server,
        inventory,
        channels,
        stop: context.stop.clone(),
    };
    let announcement = parts.spawn(&mut context, listeners, registry, &gpus, driver_signals)?;

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
    };
    // Without an orderly end: with a token that nobody accepts no pod can be served.
    let result = tokio::select! {
        result = context.until_over(reconfigured, retire, patience) => result,
        error = token::rejected(requests, &config.kubelet_token_file) => Err(error),
    };
    gpus.stop();
    result
}
