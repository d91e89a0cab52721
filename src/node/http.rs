//! `/metrics`, `/healthz`, `/readyz`, `/config` and `/usage` for whoever runs the node.

pub mod metrics;

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use divvy_api::usage::NodeUsage;
use divvy_node_core::allocator::{SharedAllocator, lock};
use divvy_runtime::logging::WarnOnce;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::kubelet::registration::Standing;

/// The configuration in effect, for people.
#[derive(Clone, Debug, Default)]
pub struct ConfigStatus {
    /// As YAML.
    pub text: String,
    /// What is wrong with the file as it stands now, if it isn't what is in effect.
    pub problem: Option<String>,
}

/// What the pages are made from.
#[derive(Debug)]
pub struct Pages {
    /// For `/metrics`.
    pub registry: Registry,
    /// For `/readyz`.
    pub allocator: SharedAllocator,
    /// For `/readyz`.
    pub standing: watch::Receiver<Standing>,
    /// For `/readyz`: why the kubelet doesn't list its pods, if that is so.
    pub unlisted: Arc<Mutex<WarnOnce>>,
    /// For `/usage`.
    pub usage: watch::Receiver<Arc<NodeUsage>>,
    /// For `/config`.
    pub config: watch::Receiver<ConfigStatus>,
}

/// Serves the pages until `stop`.
pub async fn serve(listener: TcpListener, pages: Pages, stop: CancellationToken) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(async |State(pages): State<Arc<Pages>>| divvy_runtime::metrics(&pages.registry)))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/config", get(config))
        .route("/usage", get(async |State(pages): State<Arc<Pages>>| Json(NodeUsage::clone(&pages.usage.borrow()))))
        .with_state(Arc::new(pages));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

/// Ready: the kubelet has us registered and NVML has shown its cards; what is served by a makeshift is said in a line of
/// its own. Otherwise 503 and what is missing, a line each.
async fn ready(State(pages): State<Arc<Pages>>) -> Response {
    let mut missing = Vec::new();
    match &*pages.standing.borrow() {
        Standing::Registered => {}
        Standing::Unregistered => missing.push("not registered with the kubelet".to_owned()),
        Standing::Rivalled(rival) => missing.push(format!("not registered with the kubelet: {rival}")),
    }
    missing.extend(lock(&pages.allocator).inventory().problem.clone());
    if missing.is_empty() {
        let unlisted = pages.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = ["ok"].into_iter().chain(unlisted.current()).collect();
        return (lines.join("\n") + "\n").into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, missing.join("\n") + "\n").into_response()
}

/// The effective configuration as a file that would say the same.
async fn config(State(pages): State<Arc<Pages>>) -> String {
    let ConfigStatus { text, problem } = pages.config.borrow().clone();
    problem
        .iter()
        .flat_map(|problem| problem.lines())
        .map(|line| ["# not in effect: ", line, "\n"].concat())
        .collect::<String>()
        + &text
}
