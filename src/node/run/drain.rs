//! Shutdown: first the condition Draining is published, then pods under admission are served.

use std::time::Duration;

use divvy_node_core::Daemon;
use divvy_node_core::ports::PodSource;
use tracing::{info, warn};

use crate::apiserver::Announcement;

/// Longest wait for the condition to be written. While the API server is unreachable no pods are scheduled here.
const ANNOUNCING: Duration = Duration::from_secs(5);
/// Interval of requests for the kubelet's pods.
const INTERVAL: Duration = Duration::from_millis(500);
/// Consecutive lists without a waiting pod that are required. A pod that was just bound may be on no list yet.
const QUIET: u32 = 3;

/// Returns when no more pods are waiting, and at once without an API server, where Draining can't be published.
pub(super) async fn drain<S: PodSource>(daemon: &Daemon<S>, announcement: Option<Announcement>) {
    let Some(announcement) = announcement else { return };
    if tokio::time::timeout(ANNOUNCING, announcement.make()).await.is_err() {
        return warn!("shutting down without setting Draining: API server unreachable");
    }
    info!("shutting down: Draining condition set, serving pods already bound");
    let mut quiet = 0;
    while quiet < QUIET {
        tokio::time::sleep(INTERVAL).await;
        match daemon.waiting().await {
            Ok(pods) if pods.is_empty() => quiet += 1,
            Ok(pods) => {
                quiet = 0;
                info!(pods = pods.join(", "), "waiting for pods that have no GPUs yet");
            }
            Err(refusal) => return warn!("failed to list pods that wait for GPUs: {refusal}"),
        }
    }
}
