//! Reservations of the last leader that the watch may not have shown yet: read from the pods that carry them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_index::Index;
use divvy_runtime::api_server::unanswered;
use kube::Api;
use kube::api::ListParams;

use super::objects::PodObject;

/// Selects pods that may have a reservation that their node hasn't reported: bound, and not started.
const BOUND_LATELY: &str = "spec.nodeName!=,status.phase=Pending";
/// Objects in one answer: a page of pods is a few MB of text.
const PAGE: u32 = 500;
/// Longest wait for a page. There may be a hundred of them, where nodes are slow to start what they were given.
const DEADLINE: Duration = Duration::from_secs(10);

/// A list of pods as they were when its first page was read, which goes on where it stopped.
pub struct Reservations {
    api: Api<PodObject>,
    index: Arc<Index>,
    next: ListParams,
}

// === impl Reservations ===

impl Reservations {
    pub(super) fn new(api: Api<PodObject>, index: Arc<Index>) -> Self {
        Self { api, index, next: ListParams::default().fields(BOUND_LATELY).limit(PAGE) }
    }

    /// Reads what is left, so that the index knows all of it. After an error the pages that have been read stay read, unless
    /// the API server has forgotten the list meanwhile.
    pub async fn read(&mut self) -> kube::Result<()> {
        loop {
            if self.next.continue_token.is_none() {
                self.index.begin_list();
            }
            let page = tokio::time::timeout(DEADLINE, self.api.list(&self.next)).await;
            let page = page.map_err(|_elapsed| unanswered(DEADLINE))?;
            if matches!(&page, Err(kube::Error::Api(status)) if status.code == 410) {
                self.next.continue_token = None;
            }
            let page = page?;
            page.items.iter().for_each(|pod| self.index.apply_listed(&pod.pod, Instant::now()));
            self.next.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if self.next.continue_token.is_none() {
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
