//! Pages of the admin listener for those who look for a fault: the log's filter, a CPU profile, threads and tasks, the state.
//!
//! | page | |
//! |---|---|
//! | `GET /debug/log` | the log's filter |
//! | `PUT /debug/log?for=10m` | another filter, in the request's body, for that time or until the next restart |
//! | `GET /debug/pprof/profile?seconds=10` | CPU time by function, in pprof's format |
//! | `GET /debug/threads` | threads of the process, named tasks and the runtime of these, as JSON |
//! | `GET /debug/state` | what the program decides by, as JSON |
//!
//! None shows a secret: they are read by everybody who may forward ports of the pod, and go into reports of faults.

mod log;
mod profile;
mod threads;

use std::fmt;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::logging::LogControl;
use crate::tasks::TaskList;

/// What the pages show and change.
#[derive(Clone)]
pub(crate) struct Debug {
    /// For `/debug/log`.
    pub log: LogControl,
    /// For `/debug/threads`.
    pub tasks: TaskList,
    /// For `/debug/state`; may take its time.
    pub state: Arc<dyn Fn() -> Value + Send + Sync>,
    /// Ends a profile early.
    pub stop: CancellationToken,
}

/// Longest body of a request: a filter, in bytes.
const BODY: usize = 4 << 10;

async fn state(State(debug): State<Debug>) -> Response {
    match tokio::task::spawn_blocking(move || (debug.state)()).await {
        Ok(state) => Json(state).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("reading the state: {error}\n")).into_response(),
    }
}

// === impl Debug ===

impl Debug {
    /// The routes.
    pub(crate) fn router(self) -> Router {
        let profile = get(profile::profile).with_state((Arc::new(Semaphore::new(1)), self.stop.clone()));
        Router::new()
            .route("/debug/log", get(log::show).put(log::set))
            .route("/debug/pprof/profile", profile)
            .route("/debug/threads", get(threads::show))
            .route("/debug/state", get(state))
            .layer(DefaultBodyLimit::max(BODY))
            .with_state(self)
    }
}

impl fmt::Debug for Debug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Debug").field("log", &self.log).field("tasks", &self.tasks).finish_non_exhaustive()
    }
}
