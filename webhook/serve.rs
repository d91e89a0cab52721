//! The routes, by client. Each kind of client has a listener of its own, with limits of its own: nobody starves another.
//!
//! ```text
//! API server ─────▶ /mutate /validate /jobs /templates reviews: from any replica's memory
//! kube-scheduler ─▶ /filter /prioritize /bind /preempt scheduling: from the leader's memory, for a client certificate
//! users ──────────▶ /explain /inspect                 queries: for those who may read pods and GpuNodes
//! API server ─────▶ /apis /openapi                    `aggregated_api`: for its front proxy's certificate
//! Prometheus, kubelet ─▶ /metrics /healthz /readyz    pages, without TLS
//! kubectl port-forward ▶ /config /debug               on the loopback interface alone
//! ```

mod apart;
pub mod bodies;
pub mod pages;
pub mod queries;
pub mod reviews;
pub mod scheduling;
mod suggestions;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// Answers with JSON of a known length: kube-scheduler drops the connection after an answer in chunks.
fn json(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
