//! kube-scheduler's calls: answered by the leader alone, so that one memory sees every reservation.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::bodies::{self, BodyLimits};
use super::json;
use crate::binder::Binder;
use crate::connections::Connection;
use crate::extender::{Extender, Malformed};
use crate::lease::Leader;
use crate::metrics::Metrics;

/// Answers kube-scheduler.
#[derive(Clone)]
pub struct Scheduling {
    /// Answers from the cluster state.
    pub extender: Arc<Extender>,
    /// Creates the bindings.
    pub binder: Binder,
    /// The replica that answers.
    pub leader: watch::Receiver<Leader>,
    /// The term for which the last leader's reservations are known.
    pub serving: watch::Receiver<u64>,
    /// Calls under way: the Lease is kept until they are over.
    pub calls: TaskTracker,
    /// Counters.
    pub metrics: Metrics,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Filter,
    Prioritize,
    Bind,
    Preempt,
}

/// 5 000 whole nodes of 20 KB, from a scheduler that doesn't send names.
const BODIES: BodyLimits = BodyLimits { largest: 128 << 20, in_flight: 128 << 20 };

// === impl Scheduling ===

impl Scheduling {
    /// The routes of the scheduler's configuration.
    pub fn router(self) -> Router {
        let route = |verb| {
            post(async move |State(service): State<Arc<Self>>, request: Request| service.answer(verb, request).await)
        };
        let router = Verb::ALL.iter().fold(Router::new(), |router, verb| router.route(verb.path(), route(*verb)));
        bodies::limit(router.with_state(Arc::new(self)), BODIES)
    }

    async fn answer(&self, verb: Verb, request: Request) -> Response {
        let started = Instant::now();
        let response = self.response(verb, request).await;
        self.metrics.called(verb.as_str(), started, response.status().as_u16());
        response
    }

    async fn response(&self, verb: Verb, request: Request) -> Response {
        let is_http2 = request.version() == Version::HTTP_2;
        let http2 = request.extensions().get::<Connection>().filter(|_| is_http2).cloned();
        let body = match Bytes::from_request(request, &()).await {
            Ok(body) => body,
            Err(refused) => return refused.into_response(),
        };
        let _call = self.calls.token();
        let leader = self.leader.borrow().clone();
        match leader {
            Leader::Us { term, until } if Instant::now() < until && *self.serving.borrow() == term => {
                self.own(verb, &body, until).await
            }
            Leader::Us { .. } => {
                unavailable("this replica has just become the leader and is still reading reservations: try again")
            }
            Leader::Other { identity } => {
                refuse_as_follower(http2, &format!("not the leader, which is {identity}: try again"))
            }
            Leader::Nobody => refuse_as_follower(http2, "no leader at the moment: try again"),
        }
    }

    async fn own(&self, verb: Verb, body: &[u8], until: Instant) -> Response {
        let answer = match verb {
            Verb::Filter => bodies::work(body.len(), || self.extender.filter(body)),
            Verb::Prioritize => bodies::work(body.len(), || self.extender.prioritize(body)),
            Verb::Bind => self.binder.bind(body, until).await,
            Verb::Preempt => bodies::work(body.len(), || self.extender.preempt(body)),
        };
        answer.map_or_else(
            |malformed: Malformed| {
                tracing::warn!(verb = verb.as_str(), "{malformed}");
                (StatusCode::BAD_REQUEST, format!("{malformed}\n")).into_response()
            },
            |body| json(StatusCode::OK, body),
        )
    }
}

/// Refuses a call and closes its connection, which the scheduler would keep: the Service routes the next one to the leader.
/// HTTP/1.1 has a header for that.
fn refuse_as_follower(http2: Option<Connection>, why: &str) -> Response {
    let mut response = unavailable(why);
    match http2 {
        Some(connection) => connection.close(),
        None => drop(response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"))),
    }
    response
}

/// Ends a call that the scheduler repeats after a while.
fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

// === impl Verb ===

impl Verb {
    const ALL: [Self; 4] = [Self::Filter, Self::Prioritize, Self::Bind, Self::Preempt];

    fn path(self) -> &'static str {
        match self {
            Self::Filter => "/filter",
            Self::Prioritize => "/prioritize",
            Self::Bind => "/bind",
            Self::Preempt => "/preempt",
        }
    }

    /// In metrics.
    fn as_str(self) -> &'static str {
        &self.path()[1..]
    }
}
