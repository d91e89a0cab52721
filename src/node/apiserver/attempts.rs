//! Writes that are delayed after a failure, and logged once.

use std::collections::HashMap;
use std::time::Duration;

use divvy_runtime::api_server::{Delays, Requests, within_deadline};
use tokio::time::Instant;

/// Attempts to write, by request.
pub(super) struct Attempts {
    requests: Requests,
    by_request: HashMap<&'static str, Attempt>,
}

/// Attempts to write one object: after a failure the next one is delayed.
#[derive(Default)]
pub(super) struct Attempt {
    delays: Delays,
    not_before: Option<Instant>,
}

// === impl Attempts ===

impl Attempts {
    pub(super) fn new(requests: Requests) -> Self {
        Self { requests, by_request: HashMap::new() }
    }

    /// The log of failed requests.
    pub(super) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Whether none of these requests failed a moment ago.
    pub(super) fn are_due(&self, request: &'static str) -> bool {
        self.by_request.get(request).is_none_or(Attempt::is_due)
    }

    pub(super) fn succeeded(&mut self, request: &'static str) {
        self.by_request.remove(request);
        self.requests.succeeded(request);
    }

    /// Ends the pause after failed attempts.
    pub(super) fn forget(&mut self, request: &'static str) {
        self.by_request.remove(request);
    }

    pub(super) fn failed(&mut self, request: &'static str, error: &kube::Error) {
        let pause = self.by_request.entry(request).or_default().failed(error);
        self.requests.failed(request, error, pause);
    }

    /// Makes a write unless an earlier one of its kind failed a moment ago. Returns the response if it was made and succeeded.
    pub(super) async fn make<T>(
        &mut self,
        request: &'static str,
        write: impl Future<Output = kube::Result<T>>,
    ) -> Option<T> {
        if !self.are_due(request) {
            return None;
        }
        match within_deadline(write).await {
            Ok(answer) => {
                self.succeeded(request);
                Some(answer)
            }
            Err(error) => {
                self.failed(request, &error);
                None
            }
        }
    }
}

// === impl Attempt ===

impl Attempt {
    /// Whether no earlier one failed a moment ago.
    pub(super) fn is_due(&self) -> bool {
        self.not_before.is_none_or(|time| time <= Instant::now())
    }

    /// Counts a failure. Returns the pause until the next attempt.
    pub(super) fn failed(&mut self, error: &kube::Error) -> Duration {
        let pause = self.delays.after(error);
        self.not_before = Some(Instant::now() + pause);
        pause
    }
}

/// Whether the API server has answered, and refused as far as known this object alone.
pub(super) fn concerns_one_object(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 404 | 409 | 422))
}
