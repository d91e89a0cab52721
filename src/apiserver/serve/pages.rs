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
    /// For `/readyz`: the watch of what answers are made from.
    pub gpu_nodes: WatchState,
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

/// Ready: the GpuNodes have been listed once, there is a certificate, and kube-apiserver is known. While the API server is away
/// answers come from memory, and a line says so. Otherwise 503 and what is missing, a line each.
async fn ready(State(pages): State<Arc<Pages>>) -> Response {
    let watch = pages.gpu_nodes.now();
    let why = watch.problem.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let missing = [
        (!watch.listed).then(|| format!("gpunodes not listed yet{why}")),
        pages.stopping.borrow().then(|| "stopping".to_owned()),
        pages.identity.now().is_none().then(|| "no certificate yet".to_owned()),
        (!pages.front_proxy.is_known()).then(|| "no authority of the front proxy yet".to_owned()),
    ];
    let missing: Vec<String> = missing.into_iter().flatten().collect();
    if !missing.is_empty() {
        let lines = missing.into_iter().map(|line| line + "\n").collect::<String>();
        return (StatusCode::SERVICE_UNAVAILABLE, lines).into_response();
    }
    let stale = watch.problem.map(|why| format!("gpunodes from memory, watch failing: {why}\n"));
    format!("ok\n{}", stale.unwrap_or_default()).into_response()
}
