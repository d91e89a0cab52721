//! The API server's reviews.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use divvy_index::Index;
use tokio::sync::watch;

use super::json;
use crate::admission::{Endpoint, Fit, PodDemand, Reviewed, Settings, review};
use crate::feed::Standing;
use crate::fit::fit;
use crate::metrics::Metrics;

/// Answers reviews.
#[derive(Clone)]
pub struct Reviews {
    /// How.
    pub settings: Arc<Settings>,
    /// What nodes can hold.
    pub index: Arc<Index>,
    /// Whether that is known yet.
    pub standing: watch::Receiver<Standing>,
    /// Counts.
    pub metrics: Metrics,
}

/// A review carries an object before and after, each of at most 3 MiB (`MaxRequestBodyBytes` of the API server).
const LARGEST: usize = 8 << 20;

// === impl Reviews ===

impl Reviews {
    /// The routes of the webhook configurations.
    pub fn router(self) -> Router {
        let route =
            |endpoint| post(async move |State(reviews): State<Arc<Self>>, body: Bytes| reviews.answer(endpoint, &body));
        Router::new()
            .route("/mutate", route(Endpoint::Mutate))
            .route("/validate", route(Endpoint::Validate))
            .route("/templates", route(Endpoint::Templates))
            .layer(DefaultBodyLimit::max(LARGEST))
            .with_state(Arc::new(self))
    }

    /// What makes no sense is refused within the review; HTTP has nothing to complain about.
    fn answer(&self, endpoint: Endpoint, body: &[u8]) -> Response {
        let started = Instant::now();
        let Reviewed { body, verdict } = review(body, endpoint, &self.settings, &|demand| self.fit(demand));
        self.metrics.reviewed(endpoint.as_str(), started, verdict);
        json(StatusCode::OK, body)
    }

    fn fit(&self, demand: &PodDemand) -> Fit {
        if self.standing.borrow().is_complete() { fit(&self.index, &demand.into()) } else { Fit::Unknown }
    }
}
