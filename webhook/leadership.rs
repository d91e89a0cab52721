//! The beginning and the end of a term as the leader.
//!
//! When a term begins, the reservations of the last leader are read first, so that no card is reserved twice. Then calls are
//! answered, and the Service `divvy-extender` is routed here. When it ends, connections are closed: the scheduler keeps its own
//! for ever, and only a new one is routed to the next leader.

use std::time::{Duration, Instant};

use divvy_runtime::api_server::{Requests, unanswered};
use tokio::sync::watch;
use tokio::time::{sleep, timeout_at};
use tracing::info;

use crate::connections::Connections;
use crate::endpoint_slice::ExtenderEndpoint;
use crate::lease::Leader;
use crate::watches::{Reservations, SyncStatus, Watches};

/// Wait after a failed request.
const PAUSE: Duration = Duration::from_millis(500);
/// The requests of a term, as they are logged.
const READ: &str = "list pods (the last leader's reservations)";
const ROUTE: &str = "patch endpointslices/divvy-extender";
/// Interval at which the EndpointSlice is written again, in case another client has changed it.
const REWRITE: Duration = Duration::from_secs(10);

/// Task that begins and ends the terms of this replica.
pub struct Leadership {
    /// Source of the reservations.
    pub watches: Watches,
    /// The current leader.
    pub leader: watch::Receiver<Leader>,
    /// The term in which this replica answers the scheduler.
    pub serving: watch::Sender<u64>,
    /// Log of failed requests.
    pub requests: Requests,
    /// The route to this replica.
    pub endpoint: ExtenderEndpoint,
    /// Connections of the scheduler and others.
    pub connections: Connections,
}

/// A term of this replica, and what is still to be done for it.
struct Term {
    number: u64,
    /// Reservations that are still to be read.
    unread: Option<Reservations>,
    /// When the EndpointSlice was written last.
    routed: Option<Instant>,
}

// === impl Leadership ===

impl Leadership {
    /// Begins and ends every term of this replica, for ever.
    pub async fn run(mut self) {
        let mut sync_status = self.watches.sync_status();
        if sync_status.wait_for(SyncStatus::has_synced).await.is_err() {
            return;
        }
        let mut current = None::<Term>;
        loop {
            let leader = self.leader.borrow_and_update().clone();
            let now = leader.term(Instant::now());
            if current.as_ref().is_some_and(|term| Some(term.number) != now) {
                current = None;
                self.connections.close();
            }
            let mut failed = false;
            if let (Some(number), Leader::Us { until, .. }) = (now, leader) {
                let term = current.get_or_insert_with(|| Term::new(number, self.watches.reservations()));
                let began = Instant::now();
                let step = timeout_at(until.into(), term.advance(&self.serving, &self.endpoint)).await;
                match step.unwrap_or_else(|_elapsed| Err(unanswered(began.elapsed()))) {
                    Ok(()) => [READ, ROUTE].into_iter().for_each(|request| self.requests.succeeded(request)),
                    Err(error) => {
                        let request = if term.unread.is_some() { READ } else { ROUTE };
                        self.requests.failed(request, &error, PAUSE);
                        failed = true;
                    }
                }
            }
            tokio::select! {
                changed = self.leader.changed() => if changed.is_err() { return },
                () = sleep(PAUSE), if failed => {}
            }
        }
    }
}

// === impl Term ===

impl Term {
    fn new(number: u64, unread: Reservations) -> Self {
        Self { number, unread: Some(unread), routed: None }
    }

    /// Does what is due: at every renewal of the Lease, and again after a failure.
    async fn advance(&mut self, serving: &watch::Sender<u64>, endpoint: &ExtenderEndpoint) -> kube::Result<()> {
        if let Some(unread) = &mut self.unread {
            unread.read().await?;
            self.unread = None;
            info!(term = self.number, "serving extender calls: the last leader's reservations have been read");
            serving.send_replace(self.number);
        }
        if self.routed.is_none_or(|at| at.elapsed() >= REWRITE) {
            endpoint.publish().await?;
            self.routed = Some(Instant::now());
        }
        Ok(())
    }
}
