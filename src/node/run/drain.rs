//! The end of a daemon that is told to stop: first the cluster hears of it, then pods that are on their way are served.

use std::time::Duration;

use tracing::{info, warn};

use crate::apiserver::Announcement;
use crate::kubelet::plugin::{PluginParts, lock};
use crate::observer;

/// Longest wait for the API server to take the news. While it is away nobody schedules pods here.
const ANNOUNCING: Duration = Duration::from_secs(5);
/// Between two looks at the kubelet's pods.
const INTERVAL: Duration = Duration::from_millis(500);
/// Looks in a row that find nobody waiting. A pod that was bound a moment ago may be on no list yet.
const QUIET: u32 = 3;

/// Ends when no new pods come. Without an API server nobody can be told to stay away, and waiting would be of no use.
pub(super) async fn drain(parts: &PluginParts, announcement: Option<Announcement>) {
    let Some(announcement) = announcement else { return };
    if tokio::time::timeout(ANNOUNCING, announcement.make()).await.is_err() {
        return warn!("told to stop: the API server doesn't answer, so the cluster doesn't know");
    }
    info!("told to stop: the cluster knows, pods on their way are served");
    let mut quiet = 0;
    while quiet < QUIET {
        tokio::time::sleep(INTERVAL).await;
        match observer::look(parts).await {
            Ok(pods) => {
                let waiting = lock(&parts.allocator).waiting(&pods);
                quiet = if waiting.is_empty() { quiet + 1 } else { 0 };
                if !waiting.is_empty() {
                    info!(pods = waiting.join(", "), "waiting for pods that lack their cards");
                }
            }
            Err(refusal) => return warn!("not known who still waits for cards: {refusal}"),
        }
    }
}
