//! Reconciles the ledger with the kubelet at start, and periodically for terminated pods.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_node_core::Daemon;
use divvy_node_core::allocator::{Refusal, lock, rewrite_journal};
use divvy_node_core::ports::{PodSource, PodSourceError};
use divvy_node_core::serving::{Missing, ServingProblem};
use divvy_runtime::logging::WarnOnce;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Interval of pod list requests that keep the connection warm: the kubelet caches token and access reviews for some minutes
/// (`authenticationTokenWebhookCacheTTL`), and no Allocate should have to wait for a new review.
const KEEP_WARM: Duration = Duration::from_secs(60);
/// Interval of sweeps for directories without a container: a runtime makes directories of mount sources that are missing, also
/// for a container whose pod has just ended.
const SWEEP: Duration = Duration::from_secs(60);
/// Interval of requests to the API server, which has many nodes, while the kubelet doesn't list its pods.
const UNLISTED: Duration = Duration::from_secs(60);
/// Pause after a round, in multiples of its time: a list of large pods costs the kubelet seconds.
const REST: u32 = 4;
/// Delay between attempts at start, while the kubelet isn't up.
const RETRY: Duration = Duration::from_millis(500);

/// Repairs the ledger from the kubelet's pods and its records of devices. Nothing may be allocated until that has succeeded
/// once, so it is tried until `stop`; each problem is logged once.
///
/// A kubelet that doesn't list its pods, because the API server that reviews the daemon's token is unreachable, isn't waited for
/// where the ledger has pods: their containers can't start without the daemon. The first list that succeeds repairs the
/// ledger, and nothing is allocated without one.
///
/// Returns why no new pod can be served, if known pods alone are.
pub(super) async fn recover<S: PodSource>(daemon: &Daemon<S>, stop: &CancellationToken) -> Option<ServingProblem> {
    let mut warning = WarnOnce::default();
    while !stop.is_cancelled() {
        let recovered = daemon.recover().await;
        let (pods, revision) = {
            let allocator = lock(daemon.allocator());
            (allocator.ledger().allocations().pods().count(), allocator.ledger().revision())
        };
        match recovered {
            Ok(()) => {
                lock(daemon.allocator()).remove_stale_directories();
                info!(pods, revision, "ledger reconciled with kubelet");
                return None;
            }
            Err(refusal) if refusal.is_unlisted() && pods > 0 => {
                warn!(pods, "serving known pods; ledger not yet reconciled with kubelet: {refusal}");
                return Some(ServingProblem { kind: Missing::PodList, text: refusal.to_string() });
            }
            Err(refusal) => warning.warn(format!("not registering with the kubelet yet: {refusal}")),
        }
        tokio::select! { () = tokio::time::sleep(RETRY) => {}, () = stop.cancelled() => {} }
    }
    None
}

/// Releases the shares of terminated pods every `interval`, and requests the pod list now and then to keep the connection warm.
/// `changed` is notified after each list, `doubt` after one that failed.
pub(super) async fn watch<S: PodSource>(
    daemon: Arc<Daemon<S>>,
    [changed, doubt]: [Arc<Notify>; 2],
    interval: Duration,
    stop: CancellationToken,
) {
    let mut rounds = Rounds::default();
    let mut pause = interval;
    loop {
        tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => return }
        let started = Instant::now();
        if rounds.next(&daemon).await.is_err_and(|refusal| refusal.doubts_serving()) {
            doubt.notify_one();
        }
        pause = interval.max(started.elapsed() * REST);
        changed.notify_one();
    }
}

/// Times of the last periodic actions.
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
    async fn next<S: PodSource>(&mut self, daemon: &Daemon<S>) -> Result<(), Refusal> {
        if self.swept.elapsed() >= SWEEP {
            self.swept = Instant::now();
            lock(daemon.allocator()).remove_stale_directories();
        }
        let (pods, is_idle) = {
            let allocator = lock(daemon.allocator());
            let pods: HashSet<String> =
                allocator.ledger().allocations().pods().map(|entry| entry.pod.uid.clone()).collect();
            let is_idle = pods.is_empty() && allocator.foreign_pods().is_empty();
            (pods, is_idle)
        };
        daemon.source().watch_cgroups(pods).await;
        if lock(daemon.allocator()).ledger().is_journal_overgrown() {
            let allocator = Arc::clone(daemon.allocator());
            // Not waited for: the disk may take seconds.
            drop(tokio::task::spawn_blocking(move || rewrite_journal(&allocator)));
        }
        if is_idle && self.listed.elapsed() < KEEP_WARM {
            return Ok(());
        }
        self.listed = Instant::now();
        let reconciled = self.reconcile(daemon).await;
        match &reconciled {
            Ok(()) => self.warning.clear(),
            Err(refusal) => {
                self.warning.warn(format!("releasing shares of terminated pods failed, retrying: {refusal}"));
            }
        }
        reconciled
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
