//! Leader election over a Lease (coordination.k8s.io/v1), as in `client-go`.
//!
//! Leading ends by the clock and not by a message: [`Leader::Us`] says until when. The leader checks that
//! before it acts, lets nothing last longer, and so stops in time even if this process was paused. Each time that this replica
//! acquires the Lease is a new term; reservations of the last leader must be known before the first act of a term.

mod election;

use std::time::{Duration, Instant};

use divvy_runtime::api_server::errors::describe;
use divvy_runtime::api_server::{ApiServer, unanswered};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::election::{Acquire, Election};

/// Candidate of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The pod's name.
    pub identity: String,
    /// Periods of the election.
    pub timing: Timing,
}

/// Periods of the election: `retry_period` < `renew_deadline` < `duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time that followers wait after the last renewal that they observed.
    pub duration: Duration,
    /// Time that the leader leads after the last renewal that was accepted.
    pub renew_deadline: Duration,
    /// Interval at which the Lease is read and renewed.
    pub retry_period: Duration,
}

/// Duration in a Lease that its holder has released, as `client-go` writes it.
const RELEASED_SECONDS: i32 = 1;

/// The current leader, as this replica knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This replica.
    Us {
        /// Number of the term, from 1.
        term: u64,
        /// End of the term, unless the Lease is renewed before. Nothing done as the leader may take effect later.
        until: Instant,
    },
    /// The other replica.
    Other {
        /// The pod's name.
        identity: String,
    },
    /// No replica, as far as this one knows.
    Nobody,
}

/// Reads and writes the Lease for one candidate.
struct Driver {
    leases: Api<Lease>,
    name: String,
    us: Candidate,
    election: Election,
    leader: watch::Sender<Leader>,
}

// === impl Timing ===

impl Default for Timing {
    /// As in kube-scheduler and kube-controller-manager.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

// === impl Leader ===

impl Leader {
    /// Term that this replica leads at this time, if any.
    pub fn term(&self, now: Instant) -> Option<u64> {
        match self {
            Self::Us { term, until } if now < *until => Some(*term),
            _ => None,
        }
    }
}

/// Takes part in the election over the Lease `namespace`/`name` until `stop`, then releases it: the other replica leads within
/// its `retry_period`. `calls` are what is done as the leader; the Lease is released when they are over. (A call takes its
/// token before it checks who leads.)
pub async fn run(
    api_server: ApiServer,
    namespace: &str,
    name: &str,
    us: Candidate,
    leader: watch::Sender<Leader>,
    calls: &TaskTracker,
    stop: CancellationToken,
) {
    let ApiServer { client, requests } = api_server;
    let leases = Api::namespaced(client, namespace);
    let renewal = format!("update leases/{name}");
    let Timing { renew_deadline, retry_period, .. } = us.timing;
    let mut driver = Driver { leases, name: name.to_owned(), election: Election::new(us.clone()), us, leader };
    let mut next = Instant::now();
    loop {
        let wake = driver.election.changes_at(Instant::now()).map_or(next, |change| change.min(next));
        if stop.run_until_cancelled(sleep_until(wake.into())).await.is_none() {
            break;
        }
        let now = Instant::now();
        if next <= now {
            next = now + retry_period;
            // A round that hangs leaves time for one more, and doesn't delay the end of a term.
            let limit = now + renew_deadline / 2;
            let end = driver.election.changes_at(now).map_or(limit, |change| change.min(limit));
            match stop.run_until_cancelled(timeout_at(end.into(), driver.round())).await {
                None => break,
                Some(Ok(Ok(()))) => requests.succeeded(&renewal),
                Some(Ok(Err(error))) => requests.failed(&renewal, &error, retry_period),
                Some(Err(_)) => requests.failed(&renewal, &unanswered(end - now), retry_period),
            }
        }
        driver.publish();
    }
    driver.election.release();
    driver.publish();
    calls.close();
    if timeout(renew_deadline, calls.wait()).await.is_err() {
        tracing::warn!("Lease {name}: released while scheduler calls were still running");
    }
    match timeout(renew_deadline, driver.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("Lease {name}: not released: {}", describe(&error)),
        Err(_) => tracing::warn!("Lease {name}: not released: the API server doesn't answer"),
    }
}

// === impl Driver ===

impl Driver {
    /// Reads the Lease, and acquires or renews it where that is this replica's turn.
    async fn round(&mut self) -> kube::Result<()> {
        let lease = self.leases.get_opt(&self.name).await?;
        self.election.observe(lease.as_ref().map(Acquire::from), Instant::now());
        if !self.election.may_acquire(Instant::now()) {
            return Ok(());
        }
        let sent = Instant::now();
        let params = PostParams::default();
        let written = match lease {
            None => self.leases.create(&params, &self.acquired(Lease::default())).await,
            Some(lease) => self.leases.replace(&self.name, &params, &self.acquired(lease)).await,
        };
        match written {
            Ok(lease) => self.election.accepted((&lease).into(), sent, Instant::now()),
            // Another replica was first: the next round shows which.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The Lease with this replica as its holder; its other fields stay.
    fn acquired(&self, mut lease: Lease) -> Lease {
        let ours = Acquire::from(&lease).is_of(&self.us.identity);
        let now = MicroTime(Timestamp::now());
        lease.metadata.name = Some(self.name.clone());
        let spec = lease.spec.get_or_insert_default();
        let seconds = self.us.timing.duration.as_millis().div_ceil(1000);
        spec.holder_identity = Some(self.us.identity.clone());
        spec.lease_duration_seconds = Some(i32::try_from(seconds).unwrap_or(i32::MAX));
        spec.renew_time = Some(now.clone());
        if !ours {
            spec.acquire_time = Some(now);
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
        }
        lease
    }

    /// Takes this replica's name out of the Lease, if it is there. A renewal may still be under way: then it is read again.
    async fn release(&self) -> kube::Result<()> {
        while let Some(mut lease) = self.leases.get_opt(&self.name).await? {
            if !Acquire::from(&lease).is_of(&self.us.identity) {
                break;
            }
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(RELEASED_SECONDS);
            match self.leases.replace(&self.name, &PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                written => return written.map(drop),
            }
        }
        Ok(())
    }

    fn publish(&self) {
        let now = self.election.leader(Instant::now());
        self.leader.send_if_modified(|before| {
            match (&*before, &now) {
                (before, now) if before == now => return false,
                (Leader::Us { term: before, .. }, Leader::Us { term, .. }) if before == term => {}
                (_, Leader::Us { term, .. }) => tracing::info!(term, "acquired leadership"),
                (_, Leader::Other { identity }) => tracing::info!("new leader elected: {identity}"),
                (_, Leader::Nobody) => tracing::info!("no leader holds the Lease"),
            }
            *before = now;
            true
        });
    }
}

// === impl Acquire ===

impl From<&Lease> for Acquire {
    fn from(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(seconds.unwrap_or_default()),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
