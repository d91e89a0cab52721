//! Composes the program: builds the parts, starts their tasks, and ends them in order.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use divvy_runtime::debug::{self, Debug};
use divvy_runtime::logging::{self, LogControl};
use divvy_runtime::settings::Stop;
use divvy_runtime::{Signals, Tasks};
use divvy_serving::connections::{Connections, Limits, Served, serve};
use divvy_serving::tls::{Bundles, Identity, Service, for_clients, keep_bundle, keep_secret};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::args;
use crate::config::{API_SERVICE, Config, SECRET, SERVICE};
use crate::debug::DebugState;
use crate::front_proxy::FrontProxy;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::serve::api::{Api, LISTS, WATCHES};
use crate::serve::pages::{Pages, admin_router};

/// Connections of API servers. Over HTTP/2 one carries 200 watches. A client without certificate gets no further than
/// the handshake, and loses its place first.
const CALLS: Limits = Limits { connections: 256, per_address: 256 };
/// Connections of the kubelet and Prometheus.
const PAGES: Limits = Limits { connections: 64, per_address: 16 };

/// The whole program: exit code 0 after SIGTERM, 1 after a failure, 64 for bad configuration.
pub fn main() -> ExitCode {
    match launch() {
        Ok(code) => code,
        Err(stop) => ExitCode::from(stop.report()),
    }
}

fn launch() -> Result<ExitCode, Stop> {
    let config = args::parse(std::env::args_os(), |name| std::env::var_os(name))?;
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: starting the runtime: {error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let log = logging::init(&config.log_level, config.log_format);
    let result = runtime.block_on(run(config, log));
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

/// Runs until SIGTERM or SIGINT, or until a part fails.
async fn run(config: Config, log: LogControl) -> anyhow::Result<()> {
    info!(version = env!("CARGO_PKG_VERSION"), "starting divvy-apiserver");
    let text: Arc<str> = divvy_runtime::settings::to_yaml(&config).into();
    text.lines().for_each(|line| info!("config: {line}"));
    let signals = Signals::new().context("listening for signals")?;
    let api_listener = listen(config.listen_address).await?;
    let metrics_listener = listen(config.metrics_address).await?;
    let admin_listener = listen(config.admin_address.get()).await?;
    let api_server = divvy_runtime::api_server::connect(config.kubeconfig.as_deref()).await?;
    let api_server = api_server.context(
        "no kubeconfig is set, and this is not a pod of a cluster: set --kubeconfig, the environment variable KUBECONFIG \
         or kubeconfig in the file",
    )?;

    let (retired, stop) = (CancellationToken::new(), CancellationToken::new());
    let (stops, stopping) = watch::channel(false);
    let until_stop = || Connections::until(retired.clone(), stop.clone());
    let (nodes, front_proxy, identity) = (Nodes::default(), FrontProxy::default(), Identity::unknown());
    let (mut registry, watches) = (Registry::default(), Arc::new(Semaphore::new(WATCHES)));
    let metrics = Metrics::register(&mut registry, &nodes, &watches, WATCHES);
    let service = Service { name: SERVICE.to_owned(), namespace: config.namespace.to_string(), client: None };
    let bundle = Bundles::Api(API_SERVICE.to_owned(), service.clone());

    let mut tasks = Tasks::default();
    tasks.spawn_endless("gpunodes", nodes.clone().follow(api_server.clone()));
    let connections = until_stop();
    tasks.spawn_endless("front proxy", front_proxy.clone().follow(api_server.clone(), connections.clone()));
    let keep = keep_secret(api_server.clone(), SECRET.to_owned(), service, identity.clone(), stop.clone());
    tasks.spawn("certificate", keep);
    tasks.spawn("authority", keep_bundle(api_server, bundle, identity.clone(), stop.clone()));
    let tls = for_clients(identity.clone(), front_proxy.clone()).context("TLS")?;
    let lists = Arc::new(Semaphore::new(LISTS));
    let state = DebugState {
        nodes: nodes.clone(),
        lists: Arc::clone(&lists),
        watches: Arc::clone(&watches),
        identity: identity.clone(),
        front_proxy: front_proxy.clone(),
    };
    let state = Arc::new(move || state.read());
    let debug = Debug { log, tasks: tasks.list(), state, stop: stop.clone() };
    let counters = metrics.clone();
    let served = |listener, router| Served { router, panics: counters.panics(listener) };
    let gpu_nodes = nodes.state().clone();
    let api = Api { nodes, legacy_watch: config.legacy_watch, watches, lists, metrics };
    tasks.spawn("api", serve(api_listener, Some(tls), CALLS, served("api", api.router()), connections));
    let pages = Pages { registry: registry.into(), gpu_nodes, identity, front_proxy, stopping };
    tasks.spawn("pages", serve(metrics_listener, None, PAGES, served("pages", pages.router()), until_stop()));
    let admin = admin_router(text).merge(debug.router());
    tasks.spawn("admin", debug::serve(admin_listener, admin, stop.clone()));

    let delay = config.shutdown_delay.get();
    let retire = async {
        stops.send_replace(true);
        retired.cancel();
        tokio::time::sleep(delay).await;
        stop.cancel();
    };
    tasks.until_over(signals, std::future::pending(), retire, config.drain_timeout.get()).await.map(drop)
}

async fn listen(address: std::net::SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))
}
