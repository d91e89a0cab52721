//! The API server's reviews.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use divvy_index::demand::Demand;
use divvy_index::{Feasibility, Index};
use tokio::sync::watch;

use super::bodies::{self, BodyLimits};
use super::json;
use crate::admission::{Endpoint, Reviewed, Settings, review};
use crate::metrics::Metrics;
use crate::watches::SyncStatus;

/// Answers reviews.
#[derive(Clone)]
pub struct Reviews {
    /// How pods are admitted.
    pub settings: Arc<Settings>,
    /// The cluster state.
    pub index: Arc<Index>,
    /// Whether that has synced.
    pub sync_status: watch::Receiver<SyncStatus>,
    /// Counters.
    pub metrics: Metrics,
}

/// Longest search for nodes during a review.
const PATIENCE: Duration = Duration::from_millis(2);
/// A review carries an object before and after, each of at most 3 MiB (`MaxRequestBodyBytes` of the API server).
const BODIES: BodyLimits = BodyLimits { largest: 8 << 20, in_flight: 32 << 20 };

// === impl Reviews ===

impl Reviews {
    /// The routes of the webhook configurations.
    pub fn router(self) -> Router {
        let route =
            |endpoint| post(async move |State(reviews): State<Arc<Self>>, body: Bytes| reviews.answer(endpoint, &body));
        let router = Router::new()
            .route("/mutate", route(Endpoint::Mutate))
            .route("/hide", route(Endpoint::Hide))
            .route("/validate", route(Endpoint::Validate))
            .route("/jobs", route(Endpoint::Jobs))
            .route("/templates", route(Endpoint::Templates));
        bodies::limit(router.with_state(Arc::new(self)), BODIES)
    }

    /// Answers with HTTP 200 always: a malformed review is refused within its answer.
    fn answer(&self, endpoint: Endpoint, body: &[u8]) -> Response {
        let started = Instant::now();
        let answer = || review(body, endpoint, &self.settings, &|demand| self.fit(demand));
        let Reviewed { body, verdict } = bodies::work(body.len(), answer);
        self.metrics.reviewed(endpoint.as_str(), started, verdict);
        json(StatusCode::OK, body)
    }

    /// Which nodes could take the pod; `None` until all of them are known.
    fn fit(&self, demand: &Demand) -> Option<Feasibility> {
        self.sync_status.borrow().has_synced().then(|| self.index.snapshot_for(demand).feasibility(demand, PATIENCE))
    }
}
