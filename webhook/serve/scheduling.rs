//! kube-scheduler's calls: answered by the replica that leads, so that one memory sees every promise.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::connections::Connection;
use super::json;
use crate::binder::Binder;
use crate::extender::{Extender, Malformed};
use crate::forward::{FORWARDED, Forwarder};
use crate::lease::Leader;
use crate::metrics::Metrics;
use crate::tls::{Caller, Shown};

/// Answers the scheduler.
#[derive(Clone)]
pub struct Scheduling {
    /// Answers out of the index.
    pub extender: Arc<Extender>,
    /// Posts what it plans.
    pub binder: Binder,
    /// Who answers.
    pub leader: watch::Receiver<Leader>,
    /// The term for which the promises of those who led before are known.
    pub informed: watch::Receiver<u64>,
    /// Calls under way: the lease is kept until they are over.
    pub acts: TaskTracker,
    /// Reaches the replica that does.
    pub forwarder: Forwarder,
    /// Only callers with a certificate of the scheduler's authority, or of the other replica, are answered.
    pub is_guarded: bool,
    /// Counts.
    pub metrics: Metrics,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Filter,
    Prioritize,
    Bind,
    Preempt,
}

/// Where the systems that Divvy replaces had their verbs, so that a scheduler's configuration needs another host only.
const PREFIXES: [&str; 4] = ["", "/scheduler", "/gpushare-scheduler", "/apis/metrics.nvidia.com/v1alpha1/schedule"];
const VERBS: [(&str, Verb); 5] = [
    ("filter", Verb::Filter),
    ("prioritize", Verb::Prioritize),
    ("priorities", Verb::Prioritize),
    ("bind", Verb::Bind),
    ("preempt", Verb::Preempt),
];
/// 5 000 whole nodes of 20 KB, from a scheduler that doesn't send names.
const LARGEST: usize = 128 << 20;

// === impl Scheduling ===

impl Scheduling {
    /// The routes of the scheduler's configuration.
    pub fn router(self) -> Router {
        let route = |verb| {
            post(
                async move |State(service): State<Arc<Self>>,
                            ConnectInfo(caller): ConnectInfo<Caller>,
                            request: Request| { service.answer(verb, &caller, request).await },
            )
        };
        let paths = PREFIXES
            .iter()
            .flat_map(|prefix| VERBS.iter().map(move |(name, verb)| (format!("{prefix}/{name}"), *verb)));
        let router = paths.fold(Router::new(), |router, (path, verb)| router.route(&path, route(verb)));
        router.layer(DefaultBodyLimit::max(LARGEST)).with_state(Arc::new(self))
    }

    async fn answer(&self, verb: Verb, caller: &Caller, request: Request) -> Response {
        let started = Instant::now();
        let response = self.response(verb, caller, request).await;
        self.metrics.called(verb.as_str(), started, response.status().as_u16());
        response
    }

    async fn response(&self, verb: Verb, caller: &Caller, request: Request) -> Response {
        if self.is_guarded && caller.shown == Shown::Nothing {
            let why =
                "a client certificate of the scheduler's authority is asked for: tlsConfig of the extender names it\n";
            return (StatusCode::UNAUTHORIZED, why).into_response();
        }
        let is_forwarded = request.headers().contains_key(FORWARDED);
        let connection = request.extensions().get::<Connection>().cloned();
        let body = match Bytes::from_request(request, &()).await {
            Ok(body) => body,
            Err(refused) => return refused.into_response(),
        };
        let _act = self.acts.token();
        let leader = self.leader.borrow().clone();
        match leader {
            Leader::Us { term, until } if Instant::now() < until && *self.informed.borrow() == term => {
                self.own(verb, &body, until).await
            }
            Leader::Us { .. } => {
                unavailable("this replica has just come to lead, and reads what was promised: try again")
            }
            Leader::Other { address, .. } if !is_forwarded => {
                // A scheduler keeps its connection for ever: the next one may be to the leader.
                connection.inspect(Connection::end);
                self.forward(verb, address, body).await
            }
            Leader::Other { .. } | Leader::Nobody => unavailable("no replica leads at the moment: try again"),
        }
    }

    async fn own(&self, verb: Verb, body: &[u8], until: Instant) -> Response {
        let answer = match verb {
            Verb::Filter => self.extender.filter(body),
            Verb::Prioritize => self.extender.prioritize(body),
            Verb::Bind => self.binder.bind(body, until).await,
            Verb::Preempt => self.extender.preempt(body),
        };
        answer.map_or_else(
            |malformed: Malformed| {
                tracing::warn!(verb = verb.as_str(), "{malformed}");
                (StatusCode::BAD_REQUEST, format!("{malformed}\n")).into_response()
            },
            |body| json(StatusCode::OK, body),
        )
    }

    async fn forward(&self, verb: Verb, to: SocketAddr, body: Bytes) -> Response {
        self.metrics.forwarded();
        match self.forwarder.send(to, verb.path(), body).await {
            Ok(answer) => {
                let kind = answer.headers().get(header::CONTENT_TYPE).cloned();
                let kind = kind.map(|kind| [(header::CONTENT_TYPE, kind)]);
                (answer.status(), kind, answer.into_body()).into_response()
            }
            Err(error) => unavailable(&error.to_string()),
        }
    }
}

/// Ends a call that the scheduler repeats after a while.
fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

// === impl Verb ===

impl Verb {
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
