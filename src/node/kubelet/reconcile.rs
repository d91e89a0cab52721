//! Reconciles the ledger with the kubelet when nobody asks for devices: at start, and then for ended pods.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_node_core::Daemon;
use divvy_node_core::allocator::{Refusal, lock};
use divvy_node_core::ports::{PodSource, PodSourceError};
use divvy_runtime::logging::WarnOnce;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The kubelet caches our token and its access reviews for some minutes (`authenticationTokenWebhookCacheTTL`); the
/// question is repeated so that no Allocate pays for a fresh review.
const KEEP_WARM: Duration = Duration::from_secs(60);
/// A runtime makes directories of mount sources that are missing, also for a container whose pod has just ended: nobody's
/// directories are looked for this often.
const SWEEP: Duration = Duration::from_secs(60);
/// While the kubelet doesn't list its pods the API server is asked this often: it has many nodes.
const UNLISTED: Duration = Duration::from_secs(60);
/// Between tries at start, while the kubelet isn't up.
const RETRY: Duration = Duration::from_millis(500);

/// Repairs the ledger from the kubelet's pods and its records of devices (principle 2). Until that has succeeded once
/// nothing may be promised, so it is tried until `stop`; each problem is logged once.
///
/// A kubelet that doesn't tell its pods, because the API server that reviews our token is away, isn't waited for where
/// the ledger knows pods: their containers can't start without us. The first list that succeeds repairs the ledger, and
/// nothing is promised without one.
pub async fn recover<S: PodSource>(daemon: &Daemon<S>, stop: &CancellationToken) {
    let mut warning = WarnOnce::default();
    while !stop.is_cancelled() {
        let recovered = daemon.recover().await;
        let (pods, revision) = {
            let allocator = lock(daemon.allocator());
            (allocator.ledger().book().pods().count(), allocator.ledger().revision())
        };
        match recovered {
            Ok(()) => {
                lock(daemon.allocator()).remove_stale_directories();
                return info!(pods, revision, "ledger reconciled with kubelet");
            }
            Err(refusal) if refusal.is_unlisted() && pods > 0 => {
                return warn!(pods, "serving known pods; ledger not yet reconciled with kubelet: {refusal}");
            }
            Err(refusal) => warning.warn(format!("not registering yet: {refusal}")),
        }
        tokio::select! { () = tokio::time::sleep(RETRY) => {}, () = stop.cancelled() => {} }
    }
}

/// Releases the shares of ended pods every `interval`, and asks for the pods now and then for nothing, to keep the
/// connection warm. `changed` is told after each list.
pub async fn watch<S: PodSource>(
    daemon: Arc<Daemon<S>>,
    changed: Arc<Notify>,
    interval: Duration,
    stop: CancellationToken,
) {
    let mut rounds = Rounds::default();
    loop {
        tokio::select! { () = tokio::time::sleep(interval) => {}, () = stop.cancelled() => return }
        rounds.next(&daemon).await;
        changed.notify_one();
    }
}

/// When what was last done.
struct Rounds {
    listed: Instant,
    swept: Instant,
    unlisted: Option<Instant>,
    warning: WarnOnce,
}

// === impl Rounds ===

impl Default for Rounds {
    fn default() -> Self {
        let now = Instant::now();
        Self { listed: now, swept: now, unlisted: None, warning: WarnOnce::default() }
    }
}

impl Rounds {
    async fn next<S: PodSource>(&mut self, daemon: &Daemon<S>) {
        if self.swept.elapsed() >= SWEEP {
            self.swept = Instant::now();
            lock(daemon.allocator()).remove_stale_directories();
        }
        let pods: HashSet<String> =
            lock(daemon.allocator()).ledger().book().pods().map(|entry| entry.pod.uid.clone()).collect();
        // Here, where nobody waits for it.
        daemon.source().watch_cgroups(&pods);
        if pods.is_empty() && self.listed.elapsed() < KEEP_WARM {
            return;
        }
        self.listed = Instant::now();
        match self.reconcile(daemon).await {
            Ok(()) => self.warning.clear(),
            Err(refusal) => self.warning.warn(format!("ended pods keep their shares for now: {refusal}")),
        }
    }

    async fn reconcile<S: PodSource>(&mut self, daemon: &Daemon<S>) -> Result<(), Refusal> {
        match daemon.reconcile().await {
            Err(Refusal::Pods(list @ PodSourceError::KubeletPods(_))) => {
                if self.unlisted.is_some_and(|asked| asked.elapsed() < UNLISTED) {
                    return Ok(());
                }
                self.unlisted = Some(Instant::now());
                daemon.reconcile_unlisted(list).await
            }
            reconciled => reconciled.map(drop),
        }
    }
}
