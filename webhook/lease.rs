//! Which replica leads: the one whose name stands in a Lease (coordination.k8s.io/v1), as `client-go`'s leader election has
//! it.
//!
//! Leading ends by the clock and not by a message: [`Leader::Us`] says until when, and whoever acts as the leader looks at it
//! first, lets nothing last longer, and so stops in time even if this process was paused. Each time that we come to lead is
//! a new term; what the last leader reserved must be known before the first act of a term.
//!
//! The leader's address is an annotation of the Lease and not another object: who leads and where it is change in one write.
//! (The holder's name stays the pod's, for people; a Lease has no field for an address.)

mod election;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use divvy_runtime::api_server::errors::describe;
use divvy_runtime::logging::WarnOnce;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::election::{Acquire, Election};

/// Annotation of the Lease: where the holder listens, `IP:PORT`.
pub const ADDRESS: &str = "divvy.dev/address";

/// One replica that may lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The pod's name.
    pub identity: String,
    /// Where other replicas reach it.
    pub address: SocketAddr,
    /// How the Lease is kept.
    pub timing: Timing,
}

/// How a Lease is kept: `retry_period` < `renew_deadline` < `duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Others wait for so long after the last renewal that they saw.
    pub duration: Duration,
    /// The leader stops so long after the last renewal that was accepted.
    pub renew_deadline: Duration,
    /// The Lease is looked at, and renewed, so often.
    pub retry_period: Duration,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// We do.
    Us {
        /// Which time it is that we came to lead, from 1.
        term: u64,
        /// Until then, if it isn't renewed before. Nothing done as the leader may take effect later.
        until: Instant,
    },
    /// The other replica.
    Other {
        /// Its pod's name.
        identity: String,
        /// Where it listens.
        address: SocketAddr,
    },
    /// Nobody, as far as we know.
    Nobody,
}

/// A replica that stands for election no more. Others lead, and calls that still come to it are passed on to them.
pub struct Onlooker(Driver);

/// One replica's hand on the Lease.
struct Driver {
    leases: Api<Lease>,
    name: String,
    us: Candidate,
    election: Election,
    leader: watch::Sender<Leader>,
}

// === impl Leader ===

impl Leader {
    /// The term, if we lead at this time.
    pub fn term(&self, now: Instant) -> Option<u64> {
        match self {
            Self::Us { term, until } if now < *until => Some(*term),
            _ => None,
        }
    }
}

/// Stands for election over the Lease `namespace`/`name` until `stop`, then gives it up if it is ours: the other replica
/// leads within its `retry_period`. `acts` are what is done as the leader; those under way are over before that. (An act
/// takes its token before it looks at who leads.)
pub async fn stand(
    client: Client,
    namespace: &str,
    name: &str,
    us: Candidate,
    leader: watch::Sender<Leader>,
    acts: &TaskTracker,
    stop: CancellationToken,
) -> Onlooker {
    let leases = Api::namespaced(client, namespace);
    let Timing { renew_deadline, retry_period, .. } = us.timing;
    let mut driver = Driver { leases, name: name.to_owned(), election: Election::new(us.clone()), us, leader };
    let (mut said, mut next) = (WarnOnce::default(), Instant::now());
    loop {
        let wake = driver.election.changes_at(Instant::now()).map_or(next, |change| change.min(next));
        if stop.run_until_cancelled(sleep_until(wake.into())).await.is_none() {
            break;
        }
        let now = Instant::now();
        if next <= now {
            next = now + retry_period;
            // A round that hangs leaves time for one more, and doesn't keep us from saying that our term is over.
            let limit = now + renew_deadline / 2;
            let end = driver.election.changes_at(now).map_or(limit, |change| change.min(limit));
            match stop.run_until_cancelled(timeout_at(end.into(), driver.round())).await {
                None => break,
                Some(Ok(Ok(()))) => said.clear(),
                Some(Ok(Err(error))) => said.warn(format!("Lease {name}: not kept for now: {}", describe(&error))),
                Some(Err(_)) => said.warn(format!("Lease {name}: not kept for now: the API server doesn't answer")),
            }
        }
        driver.tell();
    }
    driver.election.give_up();
    driver.tell();
    acts.close();
    if timeout(renew_deadline, acts.wait()).await.is_err() {
        tracing::warn!("Lease {name}: given up with calls of the scheduler on their way");
    }
    match timeout(renew_deadline, driver.give_up()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("Lease {name}: not given up: {}", describe(&error)),
        Err(_) => tracing::warn!("Lease {name}: not given up: the API server doesn't answer"),
    }
    Onlooker(driver)
}

// === impl Onlooker ===

impl Onlooker {
    /// Tells who leads, for ever.
    pub async fn look_on(self) {
        let Self(mut driver) = self;
        let Timing { renew_deadline, retry_period, .. } = driver.us.timing;
        loop {
            if let Ok(Ok(lease)) = timeout(renew_deadline, driver.leases.get_opt(&driver.name)).await {
                driver.election.observe(lease.as_ref().map(Acquire::from), Instant::now());
            }
            driver.tell();
            sleep(retry_period).await;
        }
    }
}

// === impl Driver ===

impl Driver {
    /// Looks at the Lease, and acquires or renews it if that is for us to do.
    async fn round(&mut self) -> kube::Result<()> {
        let lease = self.leases.get_opt(&self.name).await?;
        self.election.observe(lease.as_ref().map(Acquire::from), Instant::now());
        if !self.election.may_acquire(Instant::now()) {
            return Ok(());
        }
        let (sent, params) = (Instant::now(), PostParams::default());
        let written = match lease {
            None => self.leases.create(&params, &self.acquired(Lease::default())).await,
            Some(lease) => self.leases.replace(&self.name, &params, &self.acquired(lease)).await,
        };
        match written {
            Ok(lease) => self.election.accepted((&lease).into(), sent, Instant::now()),
            // Somebody was first: the next round shows who.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The Lease with our acquire in it; what else it holds stays.
    fn acquired(&self, mut lease: Lease) -> Lease {
        let ours = Acquire::from(&lease).is_of(&self.us);
        let now = MicroTime(Timestamp::now());
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.annotations.get_or_insert_default().insert(ADDRESS.to_owned(), self.us.address.to_string());
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

    /// Takes our name out of the Lease, if it is there. A renewal may still be under way: then it is looked at again.
    async fn give_up(&self) -> kube::Result<()> {
        while let Some(mut lease) = self.leases.get_opt(&self.name).await? {
            if !Acquire::from(&lease).is_of(&self.us) {
                break;
            }
            lease.metadata.annotations.get_or_insert_default().remove(ADDRESS);
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            match self.leases.replace(&self.name, &PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                written => return written.map(drop),
            }
        }
        Ok(())
    }

    fn tell(&self) {
        let now = self.election.leader(Instant::now());
        self.leader.send_if_modified(|before| {
            match (&*before, &now) {
                (before, now) if before == now => return false,
                (Leader::Us { term: before, .. }, Leader::Us { term, .. }) if before == term => {}
                (_, Leader::Us { term, .. }) => tracing::info!(term, "we lead"),
                (_, Leader::Other { identity, address }) => {
                    tracing::info!(%identity, %address, "another replica leads");
                }
                (_, Leader::Nobody) => tracing::info!("nobody leads"),
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
        let address = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ADDRESS));
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            address: address.and_then(|address| address.parse().ok()),
            duration: Duration::from_secs(seconds.unwrap_or_default()),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
