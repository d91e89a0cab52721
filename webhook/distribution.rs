//! The learned request distribution, kept in a ConfigMap: a replica that starts goes on from there.
//!
//! All replicas read it every minute, and go on from what is there if it was learned from more pods than they have seen:
//! so the next leader knows what the last one knew. The leader writes what it has learned when that has changed.
//! Nothing that is asked of us waits for this. Without the ConfigMap, or with one that can't be read, requests are learned
//! anew.

use std::sync::Arc;
use std::time::Duration;

use divvy_index::learned::{CONFIG_MAP, KEY};
use divvy_index::{Index, Learned};
use divvy_runtime::api_server::errors::describe;
use divvy_runtime::api_server::within_deadline;
use divvy_runtime::logging::WarnOnce;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::watches::SyncStatus;

/// How often it is read.
const PERIOD: Duration = Duration::from_secs(60);

/// Reads and writes the ConfigMap for one replica.
pub struct DistributionStore {
    maps: Api<ConfigMap>,
    index: Arc<Index>,
    warning: WarnOnce,
}

/// What to do about the distribution that is kept.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Go on from it.
    Restore(Learned),
    /// Keep this in its place.
    Write(Learned),
    /// Leave it: both are equally good.
    Nothing,
}

/// Why nothing is read or written.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(
        "it doesn't exist: what is learned of requests is forgotten when the last replica ends; apply the manifests"
    )]
    Absent,
    #[error("{KEY}: {0}: requests are learned anew")]
    Garbled(String),
    #[error("not read for now: {0}")]
    Unread(String),
    #[error("not written for now: {0}")]
    Unwritten(String),
}

// === impl DistributionStore ===

impl DistributionStore {
    /// Will keep what this index learns in the ConfigMap of this namespace.
    pub fn new(client: Client, namespace: &str, index: Arc<Index>) -> Self {
        Self { maps: Api::namespaced(client, namespace), index, warning: WarnOnce::default() }
    }

    /// Keeps it, for ever: from the time when all pods are listed, which would be counted twice otherwise, and at once
    /// when `serving` says that a term begins. Writes while `leads`.
    pub async fn run(
        mut self,
        mut sync_status: watch::Receiver<SyncStatus>,
        mut serving: watch::Receiver<u64>,
        leads: impl Fn() -> bool,
    ) {
        if sync_status.wait_for(SyncStatus::has_synced).await.is_err() {
            return;
        }
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = serving.changed() => {}
            }
            match self.round(&leads).await {
                Ok(()) => self.warning.clear(),
                Err(problem) => self.warning.warn(format!("ConfigMap {CONFIG_MAP}: {problem}")),
            }
        }
    }

    /// Looks at the ConfigMap, and does what is to be done about it.
    async fn round(&self, leads: impl Fn() -> bool) -> Result<(), Problem> {
        let map = within_deadline(self.maps.get_opt(CONFIG_MAP)).await;
        let map = map.map_err(|error| Problem::Unread(describe(&error)))?.ok_or(Problem::Absent)?;
        let text = map.data.as_ref().and_then(|data| data.get(KEY));
        let (kept, problem) = match text.map(|text| Learned::decode(text)).transpose() {
            Ok(kept) => (kept, Ok(())),
            Err(why) => (None, Err(Problem::Garbled(why))),
        };
        if let Some(kept) = &kept {
            self.index.kept(kept.revision);
        }
        match step(kept, self.index.learned(), leads()) {
            Step::Restore(kept) => {
                let Learned { revision, pods, .. } = &kept;
                tracing::info!(revision, pods, "ConfigMap {CONFIG_MAP}: going on from what was learned before");
                self.index.restore(kept);
            }
            Step::Write(learned) => self.write(map, &learned).await?,
            Step::Nothing => {}
        }
        problem
    }

    async fn write(&self, mut map: ConfigMap, learned: &Learned) -> Result<(), Problem> {
        map.data.get_or_insert_default().insert(KEY.to_owned(), learned.encode());
        match within_deadline(self.maps.replace(CONFIG_MAP, &PostParams::default(), &map)).await {
            Ok(_) => self.index.kept(learned.revision),
            // Somebody was first, and the next round shows what it wrote.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(Problem::Unwritten(describe(&error))),
        }
        Ok(())
    }
}

/// Compares what is kept with what was learned here: the one from more pods is right.
fn step(kept: Option<Learned>, own: Option<Learned>, leads: bool) -> Step {
    match (kept, own) {
        (Some(kept), own) if own.as_ref().is_none_or(|own| own.pods < kept.pods) => Step::Restore(kept),
        (kept, Some(own)) if leads && kept.as_ref().is_none_or(|kept| own.is_news_to(kept)) => {
            Step::Write(Learned { revision: own.revision.saturating_add(1), ..own })
        }
        _ => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_seen_more_pods_is_right_and_only_the_leader_writes() {
        let learned = |pods| Learned { revision: 3, pods, requests: Vec::new() };
        let written = |pods| Step::Write(Learned { revision: 4, ..learned(pods) });
        for (kept, own, when_leading, otherwise) in [
            (None, None, Step::Nothing, Step::Nothing),
            (Some(60), None, Step::Restore(learned(60)), Step::Restore(learned(60))),
            (Some(60), Some(59), Step::Restore(learned(60)), Step::Restore(learned(60))),
            (Some(60), Some(60), Step::Nothing, Step::Nothing),
            (Some(60), Some(61), Step::Nothing, Step::Nothing),
            (Some(60), Some(90), written(90), Step::Nothing),
            (None, Some(60), written(60), Step::Nothing),
        ] {
            assert_eq!(step(kept.map(learned), own.map(learned), true), when_leading, "{kept:?} {own:?}");
            assert_eq!(step(kept.map(learned), own.map(learned), false), otherwise, "{kept:?} {own:?}");
        }
    }
}
