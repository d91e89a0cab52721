//! Composes the webhook: builds the parts, starts their tasks, and ends them in order.

mod settings;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use divvy_api::installation::{API_SERVICE, SECRET, WEBHOOK};
use divvy_index::Index;
use divvy_runtime::api_server::ApiServer;
use divvy_runtime::logging;
use divvy_runtime::pages::listen;
use divvy_runtime::program::{self, Context, Program, Workers};
use divvy_runtime::settings::{Stop, Switch};
use divvy_runtime::{Next, Tasks};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::access::Access;
use crate::aggregated_api::AggregatedApi;
use crate::args;
use crate::binder::Binder;
use crate::config::{Config, Listener};
use crate::connections::{Connections, Limits, Served, serve};
use crate::debug::DebugState;
use crate::endpoint_slice::ExtenderEndpoint;
use crate::events::PodEvents;
use crate::extender::Extender;
use crate::leadership::Leadership;
use crate::lease::{self, Leader};
use crate::metrics::Metrics;
use crate::planner::Planner;
use crate::readiness::Readiness;
use crate::serve::pages::{Pages, admin_router};
use crate::serve::queries::Queries;
use crate::serve::reviews::Reviews;
use crate::serve::scheduling::Scheduling;
use crate::soft_taints::SoftTaints;
use crate::tls::{self, Bundles, Identity, keep_bundle, keep_files, keep_secret};
use crate::wake_ups::WakeUps;
use crate::watches::{SyncStatus, Watches};

/// Interval at which overdue reservations are dropped.
const EXPIRY: Duration = Duration::from_secs(5);
/// Interval at which the most frequent requests are evaluated ahead of time: a scheduler that places 200 pods a second changes
/// 50 nodes meanwhile.
const IN_ADVANCE: Duration = Duration::from_millis(250);
/// Connections for reviews. An API server opens one for each review that it waits for, and it changes 200 objects at a time
/// unless it is told otherwise (`--max-mutating-requests-inflight`). All listeners together keep fewer than the 1 024 files that
/// a process may have open where nobody has raised that.
const REVIEWS: Limits = Limits { connections: 512, per_address: 256 };
/// Connections of the scheduler. Over HTTP/1.1 it opens one for each binding under way.
const SCHEDULING: Limits = Limits { connections: 192, per_address: 192 };
/// Connections for queries.
const QUERIES: Limits = Limits { connections: 64, per_address: 16 };
/// Connections of API servers that aggregate our API. Over HTTP/2 one carries 200 watches. A client without certificate gets no
/// further than the handshake, and loses its place first.
const AGGREGATION: Limits = Limits { connections: 128, per_address: 128 };
/// Connections of the kubelet and Prometheus.
const PAGES: Limits = Limits { connections: 64, per_address: 16 };

/// State that the tasks share.
struct Parts {
    config: Config,
    api_server: ApiServer,
    index: Arc<Index>,
    watches: Watches,
    sync_status: watch::Receiver<SyncStatus>,
    aggregated_api: Option<AggregatedApi>,
    /// The certificate of reviews and queries.
    identity: Identity,
    /// The certificates that the webhook issues itself, which are those of the extender.
    issued: Identity,
    leader: watch::Receiver<Leader>,
    serving: watch::Receiver<u64>,
    calls: TaskTracker,
    metrics: Metrics,
    /// Cancelled when new calls are still answered, and connections are no longer kept open.
    retired: CancellationToken,
    stop: CancellationToken,
}

/// What a single task each changes of the parts, or has for itself.
struct Ends {
    leads: watch::Sender<Leader>,
    serves: watch::Sender<u64>,
    registry: Registry,
}

/// Open sockets, none of which is served yet.
struct Listeners {
    reviews: TcpListener,
    queries: TcpListener,
    pages: TcpListener,
    admin: TcpListener,
    extender: Option<TcpListener>,
    aggregated_api: Option<TcpListener>,
}

/// The whole program.
pub fn main() -> ExitCode {
    program::main(Workers::EachCore, launch)
}

fn launch(program: Program) -> Result<ExitCode, Stop> {
    let config = args::parse(std::env::args_os(), |name| std::env::var_os(name))?;
    let log = logging::init(&config.log_level, config.log_format);
    Ok(program.run(log, |context| run(config, context)))
}

/// Runs until SIGTERM or SIGINT, or until a part fails.
async fn run(config: Config, mut context: Context) -> anyhow::Result<Next> {
    info!(version = env!("CARGO_PKG_VERSION"), pod = &*config.pod_name, "starting divvy-webhook");
    let text: Arc<str> = divvy_runtime::settings::to_yaml(&config).into();
    text.lines().for_each(|line| info!("config: {line}"));
    let listeners = Listeners::open(&config).await?;
    let api_server = settings::api_server(&config).await?;
    let (parts, Ends { leads, serves, registry }) = Parts::new(config, api_server, context.stop.clone());

    let connections = parts.connections();
    parts.follow_cluster(serves, connections.clone(), &mut context.tasks);
    parts.keep_certificates(&mut context.tasks);
    context.tasks.spawn("lease", parts.elect(leads));
    let admin = listeners.admin;
    parts.serve_clients(listeners.reviews, listeners.queries, &mut context.tasks)?;
    if let Some(listener) = listeners.extender {
        parts.serve_scheduler(listener, connections, &mut context.tasks)?;
    }
    if let Some((api, listener)) = parts.aggregated_api.clone().zip(listeners.aggregated_api) {
        parts.serve_aggregated_api(api, listener, &mut context.tasks)?;
    }
    parts.serve_pages(listeners.pages, registry, &mut context.tasks);
    let state = parts.debug();
    context.serve_admin(admin, admin_router(text), move || state.read());

    let delay = parts.config.shutdown_delay.get();
    let retire = async {
        parts.retired.cancel();
        tokio::time::sleep(delay).await;
    };
    let patience = parts.config.drain_timeout.get();
    context.until_over(std::future::pending(), retire, patience).await
}

async fn listen_if_served(address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    match address {
        Some(address) => Ok(Some(listen("listenAddress", address).await?)),
        None => Ok(None),
    }
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

async fn score_in_advance(index: Arc<Index>) {
    let mut ticks = tokio::time::interval(IN_ADVANCE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let index = Arc::clone(&index);
        if let Err(error) = tokio::task::spawn_blocking(move || index.snapshot().score_in_advance()).await {
            tracing::error!(%error, "evaluating frequent requests ahead of time failed: extender calls take longer");
        }
    }
}

// === impl Listeners ===

impl Listeners {
    async fn open(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            reviews: listen("listenAddress", config.listen_address.listener(Listener::Reviews)).await?,
            queries: listen("listenAddress", config.listen_address.listener(Listener::Explanations)).await?,
            pages: listen("metricsAddress", config.metrics_address).await?,
            admin: listen("adminAddress", config.admin_address.get()).await?,
            extender: listen_if_served(settings::extender_address(config)).await?,
            aggregated_api: listen_if_served(settings::aggregated_api_address(config)).await?,
        })
    }
}

// === impl Parts ===

impl Parts {
    fn new(config: Config, api_server: ApiServer, stop: CancellationToken) -> (Self, Ends) {
        let index = Arc::new(Index::new(settings::reading(&config)));
        let mut registry = Registry::default();
        let aggregated_api = AggregatedApi::new(config.aggregated_api, &mut registry);
        let store = aggregated_api.as_ref().map(|api| api.store.clone());
        let watches = Watches::new(api_server.clone(), Arc::clone(&index), store);
        let (leads, leader) = watch::channel(Leader::Nobody);
        let (serves, serving) = watch::channel(0);
        let issued = Identity::unknown();
        let has_files = settings::certificate_files(&config).is_some();
        let parts = Self {
            sync_status: watches.sync_status(),
            identity: if has_files { Identity::unknown() } else { issued.clone() },
            metrics: Metrics::register(&mut registry, &index, leading(&leader)),
            calls: TaskTracker::new(),
            retired: CancellationToken::new(),
            config,
            api_server,
            index,
            watches,
            aggregated_api,
            issued,
            leader,
            serving,
            stop,
        };
        (parts, Ends { leads, serves, registry })
    }

    fn client(&self) -> Client {
        self.api_server.client.clone()
    }

    /// Connections of a listener, which are closed once this replica has retired.
    fn connections(&self) -> Connections {
        Connections::until(self.retired.clone(), self.stop.clone())
    }

    fn served(&self, listener: &'static str, router: Router) -> Served {
        Served { router, panics: self.metrics.panics(listener) }
    }

    /// Starts what fills the index, and what the leader does with it. `connections` are those of the scheduler.
    fn follow_cluster(&self, serves: watch::Sender<u64>, connections: Connections, tasks: &mut Tasks) {
        let Self { config, api_server, index, watches, leader, .. } = self;
        tasks.spawn_endless("watches", watches.clone().run());
        let leadership = Leadership {
            watches: watches.clone(),
            leader: leader.clone(),
            serving: serves,
            requests: api_server.requests.clone(),
            endpoint: ExtenderEndpoint::new(self.client(), &config.namespace, settings::address(config)),
            connections,
        };
        tasks.spawn_endless("leadership", leadership.run());
        tasks.spawn_endless("expiry", expire(Arc::clone(index)));
        tasks.spawn_endless("precomputation", score_in_advance(Arc::clone(index)));
        let events = PodEvents::new(api_server.clone(), Arc::clone(index), &config.pod_name);
        tasks.spawn_endless("pod events", events.run(leading(leader)));
        let readiness = Readiness::new(api_server.clone(), Arc::clone(index));
        tasks.spawn_endless("readiness", readiness.run(leading(leader)));
        let enabled = config.soft_taints == Switch::On;
        let soft_taints = SoftTaints::new(api_server.clone(), Arc::clone(index), self.sync_status.clone(), enabled);
        tasks.spawn_endless("soft taints", soft_taints.run(leading(leader)));
        tasks.spawn_endless("planner", self.planner().run());
    }

    /// Serves reviews and queries.
    fn serve_clients(&self, reviews: TcpListener, queries: TcpListener, tasks: &mut Tasks) -> anyhow::Result<()> {
        let tls = tls::for_everybody(self.identity.clone()).context("TLS")?;
        let served = self.served("reviews", self.reviews().router());
        tasks.spawn("reviews", serve(reviews, Some(tls.clone()), REVIEWS, served, self.connections()));
        let served = self.served("queries", self.queries().router());
        tasks.spawn("queries", serve(queries, Some(tls), QUERIES, served, self.connections()));
        Ok(())
    }

    /// Serves the extender, and has the scheduler look again at pods that may fit now.
    fn serve_scheduler(
        &self,
        listener: TcpListener,
        connections: Connections,
        tasks: &mut Tasks,
    ) -> anyhow::Result<()> {
        let wake_ups = WakeUps::new(self.api_server.clone(), Arc::clone(&self.index));
        tasks.spawn_endless("wake-ups", wake_ups.run(leading(&self.leader)));
        let expiration = match self.config.allow_unauthenticated_scheduler {
            Switch::Off => Some(self.metrics.scheduler_certificate.clone()),
            Switch::On => {
                let address = self.config.listen_address.listener(Listener::Extender);
                warn!("allowUnauthenticatedScheduler is on: any client that reaches {address} can bind pods");
                None
            }
        };
        let tls = tls::for_scheduler(self.issued.clone(), expiration).context("TLS of the extender")?;
        let served = self.served("extender", self.scheduling().router());
        tasks.spawn("extender", serve(listener, Some(tls), SCHEDULING, served, connections));
        Ok(())
    }

    /// Serves /metrics, /healthz and /readyz.
    fn serve_pages(&self, listener: TcpListener, registry: Registry, tasks: &mut Tasks) {
        let pages = Pages {
            registry: registry.into(),
            sync_status: self.sync_status.clone(),
            identities: [self.identity.clone(), self.issued.clone()],
            front_proxy: self.aggregated_api.as_ref().map(|api| api.front_proxy.clone()),
            retired: self.retired.clone(),
        };
        let served = self.served("pages", pages.router());
        tasks.spawn("pages", serve(listener, None, PAGES, served, self.connections()));
    }

    /// Starts rotation of the certificates, and of caBundle with them.
    fn keep_certificates(&self, tasks: &mut Tasks) {
        let service = settings::service(&self.config);
        let issued = self.issued.clone();
        let stop = self.stop.clone();
        let keep = keep_secret(self.api_server.clone(), SECRET.to_owned(), service, issued.clone(), stop.clone());
        tasks.spawn("certificate", keep);
        if let Some(files) = settings::certificate_files(&self.config) {
            tasks.spawn("certificate files", keep_files(files, self.identity.clone(), stop));
        } else {
            let bundles = Bundles::Webhooks(WEBHOOK.to_owned());
            tasks.spawn("authority", keep_bundle(self.api_server.clone(), bundles, issued, stop));
        }
    }

    /// Serves the aggregated API to the front proxy, and keeps caBundle of its APIService where we issue the certificate.
    fn serve_aggregated_api(&self, api: AggregatedApi, listener: TcpListener, tasks: &mut Tasks) -> anyhow::Result<()> {
        let api_server = self.api_server.clone();
        let front_proxy = api.front_proxy.clone();
        let connections = self.connections();
        if settings::certificate_files(&self.config).is_none() {
            let bundle = Bundles::Api(API_SERVICE.to_owned(), settings::service(&self.config));
            let keep = keep_bundle(api_server.clone(), bundle, self.identity.clone(), self.stop.clone());
            tasks.spawn("authority of the aggregated API", keep);
        }
        tasks.spawn_endless("front proxy", front_proxy.clone().follow(api_server, connections.clone()));
        let tls = tls::for_clients(self.identity.clone(), front_proxy).context("TLS of the aggregated API")?;
        let served = self.served("aggregated_api", api.router());
        tasks.spawn("aggregated API", serve(listener, Some(tls), AGGREGATION, served, connections));
        Ok(())
    }

    /// Takes part in the leader election until this replica has retired.
    fn elect(&self, leads: watch::Sender<Leader>) -> impl Future<Output = ()> + use<> {
        let api_server = self.api_server.clone();
        let candidate = settings::candidate(&self.config);
        let namespace = self.config.namespace.to_string();
        let calls = self.calls.clone();
        let retired = self.retired.clone();
        async move { lease::run(api_server, &namespace, WEBHOOK, candidate, leads, &calls, retired).await }
    }

    fn reviews(&self) -> Reviews {
        Reviews {
            settings: settings::admission(&self.config).into(),
            index: Arc::clone(&self.index),
            sync_status: self.sync_status.clone(),
            metrics: self.metrics.clone(),
        }
    }

    fn planner(&self) -> Planner {
        Planner {
            api_server: self.api_server.clone(),
            index: Arc::clone(&self.index),
            leader: self.leader.clone(),
            serving: self.serving.clone(),
            calls: self.calls.clone(),
        }
    }

    fn scheduling(&self) -> Scheduling {
        let most = usize::from(u16::try_from(self.config.shortlist.get()).unwrap_or(u16::MAX));
        let extender = Arc::new(Extender::new(Arc::clone(&self.index), most));
        Scheduling {
            binder: Binder::new(self.client(), Arc::clone(&extender)),
            extender,
            leader: self.leader.clone(),
            serving: self.serving.clone(),
            calls: self.calls.clone(),
            metrics: self.metrics.clone(),
        }
    }

    fn debug(&self) -> DebugState {
        DebugState {
            index: Arc::clone(&self.index),
            leader: self.leader.clone(),
            sync_status: self.sync_status.clone(),
            aggregated_api: self.aggregated_api.clone(),
        }
    }

    fn queries(&self) -> Queries {
        Queries {
            index: Arc::clone(&self.index),
            sync_status: self.sync_status.clone(),
            access: Arc::new(Access::new(self.client())),
            client: self.client(),
        }
    }
}
