//! HTTP servers: `/metrics`, `/healthz` and `/readyz` for every client, `/usage`, `/config` and the pages of
//! [`divvy_runtime::debug`] on the loopback interface.

mod debug;
pub mod metrics;

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use divvy_api::usage::NodeUsage;
use divvy_node_core::allocator::{SharedAllocator, lock};
use divvy_runtime::TaskList;
use divvy_runtime::debug::Debug;
use divvy_runtime::logging::{LogControl, WarnOnce};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::apiserver::desired::Desired;
use crate::container::Containers;
use crate::kubelet::registration::RegistrationStatus;
use crate::states::{ConfigStatus, States};

/// Sources of the pages.
#[derive(Debug)]
pub struct Pages {
    /// For `/metrics`.
    pub registry: Registry,
    /// For `/readyz`.
    pub allocator: SharedAllocator,
    /// For `/readyz`: why the kubelet doesn't list its pods, if that is so.
    pub unlisted: Arc<Mutex<WarnOnce>>,
    /// For all others.
    pub states: States,
    /// For `/debug/state`.
    pub containers: Arc<Containers>,
    /// For `/debug/state`.
    pub desired: watch::Receiver<Desired>,
}

/// The routes of `listenAddress` and those of `adminAddress`.
pub fn routers(pages: Pages, log: LogControl, tasks: TaskList, stop: CancellationToken) -> [Router; 2] {
    let pages = Arc::new(pages);
    let shown = Arc::clone(&pages);
    let debug = Debug { log, tasks, state: Arc::new(move || debug::state(&shown)), stop };
    let listen = Router::new()
        .route("/metrics", get(async |State(pages): State<Arc<Pages>>| divvy_runtime::metrics(&pages.registry)))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(Arc::clone(&pages));
    let admin = Router::new()
        .route("/config", get(config))
        .route(
            "/usage",
            get(async |State(pages): State<Arc<Pages>>| Json(NodeUsage::clone(&pages.states.usage.borrow()))),
        )
        .with_state(pages)
        .merge(debug.router());
    [listen, admin]
}

/// Serves one of the routers until `stop`.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await {
        error!(%error, "serving HTTP failed");
    }
}

/// Answers 200 if the device plugin is registered, NVML has reported the GPUs and pods can be served, with a line for each fallback in use, and
/// otherwise 503 with a line for each thing that is missing.
async fn ready(State(pages): State<Arc<Pages>>) -> Response {
    let mut missing = Vec::new();
    match &*pages.states.registration.borrow() {
        RegistrationStatus::Registered => {}
        RegistrationStatus::Unregistered => missing.push("not registered with the kubelet".to_owned()),
        RegistrationStatus::Conflict(conflict) => missing.push(format!("not registered with the kubelet: {conflict}")),
    }
    missing.extend(lock(&pages.allocator).inventory().problem.clone());
    missing.extend(pages.states.serving.borrow().as_ref().map(ToString::to_string));
    if missing.is_empty() {
        let unlisted = pages.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = ["ok"].into_iter().chain(unlisted.current()).collect();
        return (lines.join("\n") + "\n").into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, missing.join("\n") + "\n").into_response()
}

/// Answers with the effective configuration as an equivalent file.
async fn config(State(pages): State<Arc<Pages>>) -> String {
    let ConfigStatus { text, problem } = pages.states.config.borrow().clone();
    problem
        .iter()
        .flat_map(|problem| problem.lines())
        .map(|line| ["# not in effect: ", line, "\n"].concat())
        .collect::<String>()
        + &text
}
