//! What the page asks this program: its files, what has changed, why a pod waits, and what containers use.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use divvy_index::demand::SchedulingConfig;
use futures::Stream;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::Hello;
use super::page::FILES;
use super::state::{Changes, DashboardState, Sent};
use crate::cluster::{Cluster, Refusal, is_name};
use crate::view::explain;
use crate::view::top;

/// Answers the page.
pub(super) struct Server {
    pub(super) hello: Hello,
    /// By which pods are read and nodes compared.
    pub(super) config: SchedulingConfig,
    pub(super) cluster: Arc<Cluster>,
    pub(super) state: Arc<DashboardState>,
}

#[derive(Deserialize)]
struct Pod {
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Node {
    node: String,
}

/// A question that has no answer.
struct Failure(StatusCode, String);

/// Shortest time between two messages, so that a burst of changes is a few of them.
const PACE: Duration = Duration::from_millis(500);
/// Nodes of one message, at most.
const AT_ONCE: usize = 200;

// === impl Server ===

impl Server {
    /// The routes, below the secret part of the address.
    pub(super) fn router(self, secret: &str) -> Router {
        let mut router = Router::new()
            .route(&format!("/{secret}/events"), get(events))
            .route(&format!("/{secret}/explain"), get(explain))
            .route(&format!("/{secret}/usage"), get(usage));
        for file in FILES {
            let name = if file.name == "index.html" { "" } else { file.name };
            router = router.route(&format!("/{secret}/{name}"), get(async move || file));
        }
        router.with_state(Arc::new(self))
    }
}

async fn events(Shared(server): Shared<Arc<Server>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let hello = Event::default().event("hello").json_data(&server.hello).unwrap_or_default();
    let page = Page {
        state: Arc::clone(&server.state),
        changed: server.state.changed(),
        sent: Sent::default(),
        queue: [hello].into(),
    };
    let events = futures::stream::unfold(page, async |mut page| {
        let event = page.next().await?;
        Some((Ok(event), page))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

async fn explain(
    Shared(server): Shared<Arc<Server>>,
    Query(Pod { namespace, name }): Query<Pod>,
) -> Result<Response, Failure> {
    if !is_name(&namespace) || !is_name(&name) {
        return Err(Failure(StatusCode::BAD_REQUEST, "expected the namespace and the name of a pod".to_owned()));
    }
    let explained = explain::explain_pod(&server.cluster, &namespace, &name, server.config.clone()).await;
    explained.map(|explained| json(&explained)).map_err(Failure::from)
}

async fn usage(Shared(server): Shared<Arc<Server>>, Query(Node { node }): Query<Node>) -> Result<Response, Failure> {
    if !is_name(&node) {
        return Err(Failure(StatusCode::BAD_REQUEST, "expected the name of a node".to_owned()));
    }
    let usage = top::usage_of(&server.cluster, &server.hello.divvy_namespace, &node).await;
    usage.map(|usage| json(&usage)).map_err(Failure::from)
}

fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).expect("texts, numbers and lists always serialise");
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], text).into_response()
}

// === impl Page ===

/// A page that is open, and what it has been sent.
struct Page {
    state: Arc<DashboardState>,
    changed: watch::Receiver<u64>,
    sent: Sent,
    queue: VecDeque<Event>,
}

impl Page {
    /// The next message; waits until something changes.
    async fn next(&mut self) -> Option<Event> {
        while self.queue.is_empty() {
            self.changed.changed().await.ok()?;
            tokio::time::sleep(PACE).await;
            self.changed.mark_unchanged();
            let changes = self.state.news(&mut self.sent);
            self.queue.extend(messages(changes));
        }
        self.queue.pop_front()
    }
}

/// Changes in messages of a limited size.
fn messages(Changes { nodes, gone_nodes, pods, gone_pods, status }: Changes) -> Vec<Event> {
    let mut messages = Vec::new();
    for (name, set, gone) in [("nodes", nodes, gone_nodes), ("pods", pods, gone_pods)] {
        for some in set.chunks(AT_ONCE) {
            messages.push(Event::default().event(name).data(message(some, &[])));
        }
        if !gone.is_empty() {
            messages.push(Event::default().event(name).data(message(&[], &gone)));
        }
    }
    // After what it says to be complete.
    messages.extend(status.and_then(|status| Event::default().event("status").json_data(&status).ok()));
    messages
}

/// `{"set":[…],"gone":[…]}` of objects that are JSON already.
fn message(set: &[(Arc<str>, Arc<str>)], gone: &[Arc<str>]) -> String {
    let mut text = String::from("{\"set\":[");
    for (at, (_, json)) in set.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(json);
    }
    let gone: Vec<&str> = gone.iter().map(|key| &**key).collect();
    write!(text, "],\"gone\":{}}}", serde_json::json!(gone)).expect("a string takes any text");
    text
}

// === impl Failure ===

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast_ref::<Refusal>() {
            Some(refusal) => Self(code_of(refusal), refusal.to_string()),
            None => Self(StatusCode::BAD_GATEWAY, error.to_string()),
        }
    }
}

fn code_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::NotFound(_) | Refusal::UnknownKind => StatusCode::NOT_FOUND,
        Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
        Refusal::Unauthorized => StatusCode::UNAUTHORIZED,
        _ => StatusCode::BAD_GATEWAY,
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self(code, error) = self;
        (code, json(&serde_json::json!({ "error": error }))).into_response()
    }
}
