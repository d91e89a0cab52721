//! What is answered where.
//!
//! ```text
//! API server ─────▶ /mutate /validate /templates      reviews: from any replica's memory
//! kube-scheduler ─▶ /filter /prioritize /bind /preempt scheduling: the replica that leads answers, others pass on
//! people ─────────▶ /explain /inspect                 people: who may read pods and GpuNodes
//! Prometheus, kubelet ─▶ /metrics /healthz /readyz /config    pages, without TLS
//! ```

pub mod connections;
pub mod pages;
pub mod people;
pub mod reviews;
pub mod scheduling;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

/// Bytes that are JSON. Their length is stated: kube-scheduler drops the connection after an answer in chunks.
fn json(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
