//! Between coming to lead and leading: what the last leader promised is read first, so that nothing is promised twice.

use std::time::{Duration, Instant};

use divvy_runtime::api_server::errors::describe;
use divvy_runtime::logging::WarnOnce;
use tokio::sync::watch;
use tracing::info;

use crate::feed::{Feed, Promises, Standing};
use crate::lease::Leader;

const PAUSE: Duration = Duration::from_millis(500);

/// Prepares for every term of ours, and tells `informed` its number, for ever.
pub async fn take_over(feed: Feed, mut leader: watch::Receiver<Leader>, informed: watch::Sender<u64>) {
    let (mut standing, mut warning) = (feed.standing(), WarnOnce::default());
    // What is left to be read for a term.
    let mut unread = None::<(u64, Promises)>;
    loop {
        let term = leader.borrow_and_update().term(Instant::now());
        unread = unread.filter(|(of, _)| Some(*of) == term);
        if let Some(term) = term.filter(|term| *term != *informed.borrow()) {
            if standing.wait_for(Standing::is_complete).await.is_err() {
                return;
            }
            let (_, promises) = unread.get_or_insert_with(|| (term, feed.promises()));
            match promises.read().await {
                Ok(()) => {
                    unread = None;
                    warning.clear();
                    info!(term, "this replica leads: what was promised before is known");
                    informed.send_replace(term);
                }
                Err(error) => {
                    warning.warn(format!("what the last leader promised can't be read: {}", describe(&error)));
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
        }
        if leader.changed().await.is_err() {
            return;
        }
    }
}
