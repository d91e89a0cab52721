//! Composes the webhook: builds the parts, starts their tasks, and ends them in order.

mod settings;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use divvy_index::Index;
use divvy_runtime::logging;
use divvy_runtime::settings::Stop;
use divvy_runtime::{Signals, Tasks};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

use crate::access::Access;
use crate::args;
use crate::binder::Binder;
use crate::config::{Config, LEASE, SECRET, SERVICE};
use crate::endpoint_slice::ExtenderEndpoint;
use crate::events::PodEvents;
use crate::extender::Extender;
use crate::leadership::Leadership;
use crate::lease::{self, Leader};
use crate::metrics::Metrics;
use crate::serve::connections::{Connections, serve};
use crate::serve::pages::Pages;
use crate::serve::queries::Queries;
use crate::serve::reviews::Reviews;
use crate::serve::scheduling::Scheduling;
use crate::tls::{Identity, SchedulerAuthority, TlsListener, keep_bundle, keep_files, keep_secret};
use crate::watches::{SyncStatus, Watches};

/// Interval at which overdue reservations are dropped.
const EXPIRY: Duration = Duration::from_secs(5);
/// Interval at which the most frequent requests are evaluated ahead of time: a scheduler that places 200 pods a second changes
/// 50 nodes meanwhile.
const IN_ADVANCE: Duration = Duration::from_millis(250);
/// Most open connections of the TLS listener. An API server opens one for each review that it waits for, and it changes 200 objects
/// at a time unless it is told otherwise (`--max-mutating-requests-inflight`). With the handshakes under way these are
/// fewer than the 1 024 files that a process may have open where nobody has raised that.
const TLS_CONNECTIONS: usize = 512;
/// Most open connections of the metrics listener: the kubelet and Prometheus.
const METRICS_CONNECTIONS: usize = 64;

/// State that the tasks share.
struct Parts {
    config: Config,
    client: Client,
    index: Arc<Index>,
    sync_status: watch::Receiver<SyncStatus>,
    identity: Identity,
    leader: watch::Receiver<Leader>,
    serving: watch::Receiver<u64>,
    calls: TaskTracker,
    metrics: Metrics,
    stop: CancellationToken,
}

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
    logging::init(&config.log_level, config.log_format);
    let result = runtime.block_on(run(config));
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
async fn run(config: Config) -> anyhow::Result<()> {
    info!(version = env!("CARGO_PKG_VERSION"), pod = &*config.pod_name, "starting divvy-webhook");
    let text: Arc<str> = divvy_runtime::settings::to_yaml(&config).into();
    text.lines().for_each(|line| info!("config: {line}"));
    let signals = Signals::new().context("listening for signals")?;
    let tls_listener = listen(config.listen_address).await?;
    let metrics_listener = listen(config.metrics_address).await?;
    let client = settings::client(&config).await?;

    let index = Arc::new(Index::new(settings::reading(&config)));
    let watches = Watches::new(client.clone(), Arc::clone(&index));
    let (leads, leader) = watch::channel(Leader::Nobody);
    let (serves, serving) = watch::channel(0);
    let (stops, stopping) = watch::channel(false);
    let (sync_status, identity, stop) = (watches.sync_status(), Identity::unknown(), CancellationToken::new());
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, &index, leading(&leader));
    let calls = TaskTracker::new();
    let parts = Parts { config, client, index, sync_status, identity, leader, serving, calls, metrics, stop };
    let (config, stop) = (&parts.config, &parts.stop);

    let mut tasks = Tasks::default();
    tasks.spawn_endless("watches", watches.clone().run());
    let connections = Connections::until(stop.clone());
    let endpoint = ExtenderEndpoint::new(parts.client.clone(), &config.namespace, settings::address(config));
    let leader = parts.leader.clone();
    let leadership = Leadership { watches, leader, serving: serves, endpoint, connections: connections.clone() };
    tasks.spawn_endless("leadership", leadership.run());
    tasks.spawn_endless("expiry", expire(Arc::clone(&parts.index)));
    tasks.spawn_endless("precomputation", ask_in_advance(Arc::clone(&parts.index)));
    let events = PodEvents::new(parts.client.clone(), Arc::clone(&parts.index), &config.pod_name);
    tasks.spawn_endless("pod events", events.run(leading(&parts.leader)));
    parts.keep_certificate(&mut tasks);
    let retired = CancellationToken::new();
    tasks.spawn("lease", parts.elect(leads, retired.clone()));
    let router = parts.router();
    let listener =
        TlsListener::new(tls_listener, parts.identity.clone(), parts.scheduler_authority()).context("TLS")?;
    tasks.spawn("reviews", serve(listener, TLS_CONNECTIONS, router, connections));
    let identity = parts.identity.clone();
    let pages =
        Pages { registry: registry.into(), sync_status: parts.sync_status.clone(), identity, stopping, config: text };
    tasks
        .spawn("pages", serve(metrics_listener, METRICS_CONNECTIONS, pages.router(), Connections::until(stop.clone())));

    let delay = config.shutdown_delay.get();
    let retire = async {
        stops.send_replace(true);
        retired.cancel();
        tokio::time::sleep(delay).await;
        stop.cancel();
    };
    let patience = config.drain_timeout.get();
    tasks.until_over(signals, std::future::pending(), retire, patience).await.map(drop)
}

async fn listen(address: std::net::SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))
}

/// Whether this replica is the leader now.
fn leading(leader: &watch::Receiver<Leader>) -> impl Fn() -> bool + Send + Sync + 'static {
    let leader = leader.clone();
    move || leader.borrow().term(Instant::now()).is_some()
}

async fn expire(index: Arc<Index>) {
    let mut ticks = tokio::time::interval(EXPIRY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        index.expire(Instant::now());
    }
}

async fn ask_in_advance(index: Arc<Index>) {
    let mut ticks = tokio::time::interval(IN_ADVANCE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let index = Arc::clone(&index);
        if let Err(error) = tokio::task::spawn_blocking(move || index.ask_in_advance()).await {
            tracing::error!(%error, "evaluating frequent requests ahead of time failed: extender calls take longer");
        }
    }
}

// === impl Parts ===

impl Parts {
    /// Starts rotation of the serving certificate, and of caBundle with it.
    fn keep_certificate(&self, tasks: &mut Tasks) {
        let (service, identity, stop) = (settings::service(&self.config), self.identity.clone(), self.stop.clone());
        if let Some(files) = settings::certificate_files(&self.config) {
            tasks.spawn("certificate", keep_files(files, identity, stop));
            return;
        }
        let client = &self.client;
        tasks.spawn(
            "certificate",
            keep_secret(client.clone(), SECRET.to_owned(), service, identity.clone(), stop.clone()),
        );
        tasks.spawn("authority", keep_bundle(client.clone(), SERVICE.to_owned(), identity, stop));
    }

    /// Takes part in the leader election until `retired`.
    fn elect(&self, leads: watch::Sender<Leader>, retired: CancellationToken) -> impl Future<Output = ()> + use<> {
        let (client, candidate) = (self.client.clone(), settings::candidate(&self.config));
        let namespace = self.config.namespace.to_string();
        let calls = self.calls.clone();
        async move { lease::run(client, &namespace, LEASE, candidate, leads, &calls, retired).await }
    }

    fn scheduler_authority(&self) -> Option<SchedulerAuthority> {
        let file = self.config.scheduler_client_ca.as_ref()?;
        Some(SchedulerAuthority::follow(file.to_path_buf(), self.stop.clone()))
    }

    fn router(&self) -> Router {
        let (index, sync_status, metrics) = (&self.index, &self.sync_status, &self.metrics);
        let reviews = Reviews {
            settings: settings::admission(&self.config).into(),
            index: Arc::clone(index),
            sync_status: sync_status.clone(),
            metrics: metrics.clone(),
        };
        let most = usize::from(u16::try_from(self.config.shortlist.get()).unwrap_or(u16::MAX));
        let extender = Arc::new(Extender::new(Arc::clone(index), most));
        let scheduling = Scheduling {
            binder: Binder::new(self.client.clone(), Arc::clone(&extender)),
            extender,
            leader: self.leader.clone(),
            serving: self.serving.clone(),
            calls: self.calls.clone(),
            is_guarded: self.config.scheduler_client_ca.is_some(),
            metrics: metrics.clone(),
        };
        let queries = Queries {
            index: Arc::clone(index),
            sync_status: sync_status.clone(),
            access: Arc::new(Access::new(self.client.clone())),
            client: self.client.clone(),
        };
        reviews.router().merge(scheduling.router()).merge(queries.router())
    }
}
