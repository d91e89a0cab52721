//! The log of requests to the API server that fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::runtime::watcher;
use tracing::{info, warn};

use super::errors::{describe, describe_watch};
use crate::outage::{Outage, seconds};

/// Failed requests of all tasks to one API server, each logged once and then at growing distance.
///
/// A request is named by its verb and resource, as a Role does, with what else is needed to know it. Those that get no answer
/// are one failure, whatever they ask: that of the API server. Each line has its address.
#[derive(Clone, Debug)]
pub struct Requests {
    address: Arc<str>,
    outages: Arc<Mutex<Outages>>,
}

#[derive(Debug, Default)]
struct Outages {
    /// Requests without an answer.
    server: Option<Outage>,
    /// Requests that the API server refuses.
    requests: HashMap<String, Outage>,
    /// First and last answer 401 since the last other answer.
    unauthorized: Option<(Instant, Instant)>,
}

// === impl Requests ===

impl Requests {
    /// The log for the API server at this address, such as `https://10.96.0.1:443`.
    pub fn new(address: &str) -> Self {
        Self { address: address.into(), outages: Arc::default() }
    }

    /// Address of the API server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Records a failed request, which is made again after `pause`.
    pub fn failed(&self, request: &str, error: &kube::Error, pause: Duration) {
        self.record(request, is_unanswered(error), &describe(error), pause);
    }

    /// Records a watch that couldn't begin or go on; it begins again after `pause`.
    pub fn watch_failed(&self, request: &str, error: &watcher::Error, pause: Duration) {
        let unanswered = match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => is_unanswered(error),
            watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => false,
        };
        self.record(request, unanswered, &describe_watch(error), pause);
    }

    /// Records that a request has succeeded.
    pub fn succeeded(&self, request: &str) {
        let mut outages = self.outages();
        if let Some(lasted) = outages.requests.get_mut(request).and_then(|outage| outage.ended(Instant::now())) {
            info!("API server {}: {request} succeeds again after {lasted}", self.address);
        }
    }

    /// Time between the first and the last answer 401 (Unauthorized) since there was any other; `None` if the last answer was
    /// another one.
    pub fn unauthorized(&self) -> Option<Duration> {
        self.outages().unauthorized.map(|(first, last)| last - first)
    }

    /// Records an answer of any kind.
    pub(super) fn answered(&self, is_unauthorized: bool) {
        let mut outages = self.outages();
        let now = Instant::now();
        let first = outages.unauthorized.map_or(now, |(first, _)| first);
        outages.unauthorized = is_unauthorized.then_some((first, now));
        if let Some(lasted) = outages.server.as_mut().and_then(|outage| outage.ended(Instant::now())) {
            info!("API server {}: answers again after {lasted}", self.address);
        }
    }

    fn record(&self, request: &str, unanswered: bool, cause: &str, pause: Duration) {
        let mut outages = self.outages();
        let now = Instant::now();
        outages.requests.retain(|_request, outage| !outage.is_over(now));
        let outage = if unanswered {
            outages.server.get_or_insert_with(|| Outage::new(now))
        } else {
            outages.requests.entry(request.to_owned()).or_insert_with(|| Outage::new(now))
        };
        if let Some(repeated) = outage.failed(cause, now) {
            let pause = seconds(pause);
            warn!("API server {}: {request} failed{repeated}: {cause}; next try in {pause}", self.address);
        }
    }

    fn outages(&self) -> MutexGuard<'_, Outages> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether no answer came, or only a part of one.
fn is_unanswered(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_))
}
