//! `/metrics`, `/healthz`, `/readyz` and `/config` for whoever runs the cluster.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use divvy_runtime::metrics;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::feed::Standing;
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
        let standing = self.standing.borrow();
        let why = |kind| standing.problem(kind).map(|why| format!(": {why}")).unwrap_or_default();
        let stopping = self.stopping.borrow().then(|| "stopping".to_owned());
        let unlisted = standing.unlisted().map(|kind| format!("{} not listed yet{}", kind.as_str(), why(kind)));
        let certificate = self.identity.now().is_none().then(|| "no certificate yet".to_owned());
        stopping.into_iter().chain(unlisted).chain(certificate).collect()
    }

    /// What is known by what was heard before.
    fn remembered(&self) -> Vec<String> {
        let standing = self.standing.borrow();
        let known = standing.listed().filter_map(|kind| Some((kind, standing.problem(kind)?)));
        known.map(|(kind, why)| format!("{} from memory: {why}", kind.as_str())).collect()
    }
}

/// Ready: the cluster has been listed once and there is a certificate to show. While the API server is away answers come
/// from memory, and a line says so. Otherwise 503 and what is missing, a line each.
async fn ready(State(pages): State<Arc<Pages>>) -> Response {
    let (missing, remembered) = (pages.missing(), pages.remembered());
    let (code, first) = if missing.is_empty() {
        (StatusCode::OK, vec!["ok".to_owned()])
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, missing)
    };
    (code, first.into_iter().chain(remembered).map(|line| line + "\n").collect::<String>()).into_response()
}
