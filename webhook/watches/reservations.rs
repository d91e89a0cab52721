//! Reservations of the last leader that the watch may not have shown yet: read from the pods that carry them.

use std::sync::Arc;
use std::time::Instant;

use divvy_index::Index;
use divvy_index::pod::ListedPod;
use divvy_runtime::api_server::pages::Pages;
use divvy_runtime::list::Each;
use kube::Client;

/// Selects pods that may have a reservation that their node hasn't reported: not started, whether bound or nominated.
const NOT_STARTED: &str = "status.phase=Pending";

/// A list of pods as they were when its first page was read, which goes on where it stopped.
pub struct Reservations {
    client: Client,
    index: Arc<Index>,
    pages: Pages,
}

// === impl Reservations ===

impl Reservations {
    pub(super) fn new(client: Client, index: Arc<Index>) -> Self {
        Self { client, index, pages: Pages::new("/api/v1/pods", NOT_STARTED) }
    }

    /// Reads what is left, so that the index knows all of it. After an error the pages that have been read stay read, unless
    /// the API server has forgotten the list meanwhile.
    pub async fn read(&mut self) -> kube::Result<()> {
        loop {
            if self.pages.is_at_start() {
                self.index.begin_list();
            }
            let each = Each::new(|listed: ListedPod| self.index.apply_listed(&listed.pod, Instant::now()));
            self.pages.read(&self.client, each).await?;
            if self.pages.is_at_start() {
                return Ok(());
            }
        }
    }
}

impl Drop for Reservations {
    fn drop(&mut self) {
        self.index.end_list();
    }
}
