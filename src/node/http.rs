//! HTTP servers: `/metrics`, `/healthz` and `/readyz` for every client, `/usage`, `/config` and the pages of
//! [`divvy_runtime`] on the loopback interface.

mod debug;
pub mod metrics;

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use divvy_api::usage::NodeUsage;
use divvy_node_core::allocator::{SharedAllocator, lock};
use divvy_runtime::logging::WarnOnce;
use divvy_runtime::pages::{self, Readiness};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::watch;

use crate::apiserver::desired::Desired;
use crate::container::Containers;
use crate::kubelet::registration::RegistrationStatus;
use crate::states::{ConfigStatus, States};

/// Sources of the pages.
#[derive(Debug)]
pub struct Pages {
    /// For `/metrics`.
    pub registry: Arc<Registry>,
    /// For `/readyz`.
    pub allocator: SharedAllocator,
    /// For `/readyz`: why the kubelet doesn't list its pods, if that is so.
    pub unlisted: Arc<Mutex<WarnOnce>>,
    /// For all others.
    pub states: States,
    /// For `/debug/state`.
    pub containers: Arc<Containers>,
    /// For `/debug/state`.
    pub desired: watch::Receiver<Desired>,
}

// === impl Pages ===

impl Pages {
    /// The routes of `listenAddress`.
    pub fn router(self: Arc<Self>) -> Router {
        pages::router(Arc::clone(&self.registry), move || self.readiness())
    }

    /// The routes of `adminAddress`, beside those of [`divvy_runtime`].
    pub fn admin_router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/config", get(config))
            .route(
                "/usage",
                get(async |State(pages): State<Arc<Self>>| Json(NodeUsage::clone(&pages.states.usage.borrow()))),
            )
            .with_state(self)
    }

    /// What the daemon decides by, for `/debug/state`.
    pub fn state(&self) -> Value {
        debug::state(self)
    }

    /// Ready: the device plugin is registered, NVML has reported the GPUs and pods can be served. Then there is a line for a
    /// fallback in use.
    fn readiness(&self) -> Readiness {
        let mut missing = Vec::new();
        match &*self.states.registration.borrow() {
            RegistrationStatus::Registered => {}
            RegistrationStatus::Unregistered => missing.push("not registered with the kubelet".to_owned()),
            RegistrationStatus::Conflict(conflict) => {
                missing.push(format!("not registered with the kubelet: {conflict}"));
            }
        }
        missing.extend(lock(&self.allocator).inventory().problem.clone());
        missing.extend(self.states.serving.borrow().as_ref().map(ToString::to_string));
        let unlisted = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        let lacking = unlisted.current().filter(|_| missing.is_empty()).map(str::to_owned).into_iter().collect();
        Readiness { missing, lacking }
    }
}

/// Answers with the effective configuration as an equivalent file.
async fn config(State(pages): State<Arc<Pages>>) -> String {
    let ConfigStatus { text, problem } = pages.states.config.borrow().clone();
    problem
        .iter()
        .flat_map(|problem| problem.lines())
        .map(|line| ["# not in effect: ", line, "\n"].concat())
        .collect::<String>()
        + &text
}
