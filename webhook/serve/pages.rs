//! `/metrics`, `/healthz`, `/readyz` and `/config` for whoever runs the cluster.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use divvy_process::metrics;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::feed::{Kind, Standing};
use crate::tls::Identity;

/// What the pages are made from.
#[derive(Clone, Debug)]
pub struct Pages {
    /// For `/metrics`.
    pub registry: Arc<Registry>,
    /// For `/readyz`.
    pub standing: watch::Receiver<Standing>,
    /// For `/readyz`: whether there is a certificate to show.
    pub identity: Identity,
    /// For `/readyz`: told to stop.
    pub stopping: watch::Receiver<bool>,
    /// For `/config`.
    pub config: Arc<str>,
}

// === impl Pages ===

impl Pages {
    /// The routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(async |State(pages): State<Arc<Self>>| metrics(&pages.registry)))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/config", get(async |State(pages): State<Arc<Self>>| pages.config.to_string()))
            .with_state(Arc::new(self))
    }

    /// Why no reviews should be sent here.
    fn missing(&self) -> Vec<String> {
        let unlisted = self.standing.borrow().unlisted().map(Kind::as_str).collect::<Vec<_>>();
        let mut missing = Vec::new();
        if *self.stopping.borrow() {
            missing.push("stopping".to_owned());
        }
        if !unlisted.is_empty() {
            missing.push(format!("not listed yet: {}", unlisted.join(", ")));
        }
        if self.identity.now().is_none() {
            missing.push("no certificate yet".to_owned());
        }
        missing
    }
}

/// Ready: the cluster has been listed once and there is a certificate to show. While the API server is away answers come
/// from memory, and a line says so. Otherwise 503 and what is missing, a line each.
async fn ready(State(pages): State<Arc<Pages>>) -> Response {
    let standing = pages.standing.borrow().clone();
    let problems = standing.problems().map(|(kind, why)| format!("{} from memory: {why}\n", kind.as_str()));
    let missing = pages.missing();
    if missing.is_empty() {
        return ("ok\n".to_owned() + &problems.collect::<String>()).into_response();
    }
    let lines = missing.into_iter().map(|line| line + "\n").chain(problems);
    (StatusCode::SERVICE_UNAVAILABLE, lines.collect::<String>()).into_response()
}
