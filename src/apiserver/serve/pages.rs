//! `/metrics`, `/healthz` and `/readyz` for every client, `/config` on the loopback interface, with the pages of [`divvy_runtime::debug`].

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use divvy_runtime::metrics;
use divvy_serving::tls::Identity;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::front_proxy::FrontProxy;
use crate::watch_state::WatchState;

/// Content of the pages.
#[derive(Clone, Debug)]
pub struct Pages {
    /// For `/metrics`.
    pub registry: Arc<Registry>,
    /// For `/readyz`: the watches of what answers are made from, with the names of their objects.
    pub watches: Vec<(&'static str, WatchState)>,
    /// For `/readyz`: whether there is a certificate to serve.
    pub identity: Identity,
    /// For `/readyz`: whether kube-apiserver would be let in.
    pub front_proxy: FrontProxy,
    /// For `/readyz`: whether the process is shutting down.
    pub stopping: watch::Receiver<bool>,
}

/// The route of `adminAddress` beside `/debug`; `config` is the effective configuration.
pub fn admin_router(config: Arc<str>) -> Router {
    Router::new().route("/config", get(async |State(config): State<Arc<str>>| config.to_string())).with_state(config)
}

// === impl Pages ===

impl Pages {
    /// The routes of `metricsAddress`.
    pub fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(async |State(pages): State<Arc<Self>>| metrics(&pages.registry)))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .with_state(Arc::new(self))
    }
}

/// Ready: the GpuNodes have been listed once (with custom metrics the daemons' pods too), there is a certificate, and
/// kube-apiserver is known. While the API server is away answers come from memory, and a line says so. Otherwise 503 and what is
/// missing, a line each.
async fn ready(State(pages): State<Arc<Pages>>) -> Response {
    let watches: Vec<_> = pages.watches.iter().map(|(objects, watch)| (*objects, watch.now())).collect();
    let unlisted = watches.iter().filter(|(_, watch)| !watch.listed).map(|(objects, watch)| {
        let why = watch.problem.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        Some(format!("{objects} not listed yet{why}"))
    });
    let missing = [
        pages.stopping.borrow().then(|| "stopping".to_owned()),
        pages.identity.now().is_none().then(|| "no certificate yet".to_owned()),
        (!pages.front_proxy.is_known()).then(|| "no authority of the front proxy yet".to_owned()),
    ];
    let missing: Vec<String> = missing.into_iter().chain(unlisted).flatten().collect();
    if !missing.is_empty() {
        let lines = missing.into_iter().map(|line| line + "\n").collect::<String>();
        return (StatusCode::SERVICE_UNAVAILABLE, lines).into_response();
    }
    let stale = watches.iter().filter_map(|(objects, watch)| {
        Some(format!("{objects} from memory, watch failing: {}\n", watch.problem.as_ref()?))
    });
    format!("ok\n{}", stale.collect::<String>()).into_response()
}
