//! `divvy-apiserver` as processes, with the rights that are installed, against the API-server stand-in and over real sockets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod bench;
mod client;
mod doors;
mod lists;
mod memory;
mod starting;
mod watches;

use std::time::Duration;

/// Longest wait for anything.
const LONG: Duration = Duration::from_secs(60);

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
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(what, looks).await
}
