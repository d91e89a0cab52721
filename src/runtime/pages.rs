//! Listeners, and the pages that every program has for Prometheus and the kubelet.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// Whether a program can do its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// What keeps it from that, a line each.
    pub missing: Vec<String>,
    /// What it does without or in another way, a line each.
    pub lacking: Vec<String>,
}

/// Listens on the address that `key` of the configuration names.
pub async fn listen(key: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{key}: listening on {address}"))
}

/// Serves the listener of `key` until `stop`, then ends when the calls under way are answered.
pub async fn serve(key: &'static str, listener: TcpListener, router: Router, stop: CancellationToken) {
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await {
        error!(%error, "serving {key} failed");
    }
}

/// `/metrics`, `/healthz` and `/readyz`.
pub fn router(registry: Arc<Registry>, readiness: impl Fn() -> Readiness + Clone + Send + Sync + 'static) -> Router {
    Router::new()
        .route("/metrics", get(async move || metrics(&registry)))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(async move || ready(readiness())))
}

/// The metrics, as OpenMetrics.
fn metrics(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("metrics: {error}\n")).into_response(),
    }
}

/// 200 and `ok`, or 503 and what is missing; then what is lacking.
fn ready(Readiness { missing, lacking }: Readiness) -> Response {
    let (code, first) = if missing.is_empty() {
        (StatusCode::OK, vec!["ok".to_owned()])
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, missing)
    };
    (code, first.into_iter().chain(lacking).map(|line| line + "\n").collect::<String>()).into_response()
}
