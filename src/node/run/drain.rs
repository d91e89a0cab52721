//! The end of a daemon that is told to stop: first the cluster hears of it, then pods that are on their way are served.

use std::time::Duration;

use divvy_node_core::Daemon;
use divvy_node_core::ports::PodSource;
use tracing::{info, warn};

use crate::apiserver::Announcement;

/// Longest wait for the API server to take the news. While it is away nobody schedules pods here.
const ANNOUNCING: Duration = Duration::from_secs(5);
/// Between two looks at the kubelet's pods.
const INTERVAL: Duration = Duration::from_millis(500);
/// Looks in a row that find nobody waiting. A pod that was bound a moment ago may be on no list yet.
const QUIET: u32 = 3;

/// Ends when no new pods come. Without an API server nobody can be told to stay away, and waiting would be of no use.
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
                info!(pods = pods.join(", "), "waiting for pods that lack their cards");
            }
            Err(refusal) => return warn!("cannot tell which pods still wait for cards: {refusal}"),
        }
    }
}
