//! Follows whether pods can be served at all. While they can't be, no device is free, the Node offers what is held, and readiness
//! and `GpuNode` say why, so that no scheduler sends pods to a node that fails each of them.
//!
//! A refused call, or a list of pods that fails, is a doubt; only what fails twice in a row, [`CONFIRMING`] apart, counts: one
//! slow answer isn't worth the devices of a node. The first look that succeeds ends it. A node without pods and calls has its
//! doubt at the next list of pods, within a minute; a full disk is found by the first pod that it fails.

use std::sync::Arc;
use std::time::Duration;

use divvy_node_core::Daemon;
use divvy_node_core::ports::PodSource;
use divvy_node_core::serving::ServingProblem;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::kubelet::registration::RegistrationStatus;

/// Time between two looks that both have to fail.
const CONFIRMING: Duration = Duration::from_secs(2);
/// Time between two looks while pods can't be served.
const AGAIN: Duration = Duration::from_secs(5);

/// Keeps `state` up to date until `stop`. `doubt` is notified of whatever may keep pods from being served. While the daemon isn't
/// registered, as when the kubelet is away, nothing is offered, and nobody fails pods.
pub(super) async fn watch<S: PodSource>(
    daemon: Arc<Daemon<S>>,
    doubt: Arc<Notify>,
    registration: watch::Receiver<RegistrationStatus>,
    state: watch::Sender<Option<ServingProblem>>,
    stop: CancellationToken,
) {
    let is_registered = || *registration.borrow() == RegistrationStatus::Registered;
    let follow = async {
        loop {
            // Known from the start.
            let known = state.borrow().clone();
            if let Some(problem) = known {
                until_over(&daemon, problem, &state).await;
            }
            doubt.notified().await;
            if state.borrow().is_some() {
                continue;
            }
            let is_certain = daemon.try_serving().await.is_err();
            // Also after a good look: refusals that it can't explain must not become a burst of looks.
            tokio::time::sleep(CONFIRMING).await;
            if is_certain
                && let Err(problem) = daemon.try_serving().await
                && is_registered()
            {
                until_over(&daemon, problem, &state).await;
            }
        }
    };
    tokio::select! { () = follow => {}, () = stop.cancelled() => {} }
}

async fn until_over<S: PodSource>(
    daemon: &Daemon<S>,
    mut problem: ServingProblem,
    state: &watch::Sender<Option<ServingProblem>>,
) {
    warn!("accepting no new pods: {problem}");
    loop {
        state.send_replace(Some(problem));
        tokio::time::sleep(AGAIN).await;
        match daemon.try_serving().await {
            Err(now) => problem = now,
            Ok(()) => break,
        }
    }
    state.send_replace(None);
    info!("accepting new pods again");
}
