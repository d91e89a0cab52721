//! `divvy-webhook` as processes, with the rights and the webhook configurations that are installed, against the API-server
//! stand-in.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod aggregated_api;
mod bad_input;
mod bench;
mod bindings;
mod debug;
mod dialects;
mod events;
mod expected;
mod gates;
mod guarded;
mod https;
mod large_pods;
mod leaders;
mod memory;
mod metrics;
mod outages;
mod queries;
mod quotas;
mod replica;
mod reviews;
mod scheduling;
mod soft_taints;
mod starting;
mod stopping;
mod strangers;
mod wake_ups;

use std::time::Duration;

/// Longest wait for anything.
const LONG: Duration = Duration::from_secs(60);
/// Between looks at what tells nobody of its changes.
const PAUSE: Duration = Duration::from_millis(20);

async fn within<T>(what: &str, end: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, end).await.unwrap_or_else(|_| panic!("not within a minute: {what}"))
}

/// Looks until there is something to see.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looks = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    within(what, looks).await
}
