//! Looks at the kubelet's pods when nobody asks for devices: at start, to repair the books, and then for ended pods.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::allocation::Refusal;
use crate::kubelet::plugin::{PluginParts, lock};
use crate::kubelet::pods::PodView;
use crate::kubelet::socket::SocketFile;
use crate::ledger::reconcile::Assigned;
use crate::logging::Once;

/// The kubelet caches our token and its access reviews for some minutes (`authenticationTokenWebhookCacheTTL`); the
/// question is repeated so that no Allocate pays for a fresh review.
const KEEP_WARM: Duration = Duration::from_secs(60);
/// Between tries at start, while the kubelet isn't up.
const RETRY: Duration = Duration::from_millis(500);

/// Repairs the books from the kubelet's pods and its records of devices (principle 2). Until that has succeeded once
/// nothing may be promised, so it is tried until `stop`; each problem is said once.
pub async fn recover(parts: &PluginParts, stop: &CancellationToken) {
    let mut said = Once::default();
    while !stop.is_cancelled() {
        match try_recover(parts).await {
            Ok(_pods) => {
                let allocator = lock(&parts.allocator);
                allocator.remove_stale_directories();
                let pods = allocator.ledger().book().pods().count();
                return info!(pods, revision = allocator.ledger().revision(), "books agree with the kubelet");
            }
            Err(problem) => said.warn(format!("not registering yet: {problem}")),
        }
        tokio::select! { () = tokio::time::sleep(RETRY) => {}, () = stop.cancelled() => {} }
    }
}

async fn try_recover(parts: &PluginParts) -> Result<Vec<PodView>, String> {
    // Safe here, and only here: no Allocate of ours is in flight before we register.
    let assigned = parts.pod_resources.list().await.map_err(|error| error.to_string())?;
    look(parts, Some(&assigned)).await.map_err(|refusal| refusal.to_string())
}

/// Looks for ended pods every `interval`, and now and then for nothing, to keep the connection warm.
pub async fn watch(parts: PluginParts, interval: Duration, stop: CancellationToken) {
    let mut last = Instant::now();
    let mut said = Once::default();
    loop {
        tokio::select! { () = tokio::time::sleep(interval) => {}, () = stop.cancelled() => return }
        let idle = lock(&parts.allocator).ledger().book().pods().next().is_none();
        if idle && last.elapsed() < KEEP_WARM {
            continue;
        }
        last = Instant::now();
        match look(&parts, None).await {
            Ok(_pods) => said.over(),
            Err(refusal) => said.warn(format!("ended pods keep their shares for now: {refusal}")),
        }
    }
}

/// The kubelet's pods, fresh, after the books were brought in line with them.
pub async fn look(parts: &PluginParts, assigned: Option<&[Assigned]>) -> Result<Vec<PodView>, Refusal> {
    let as_of = lock(&parts.allocator).ledger().revision();
    let started = Instant::now();
    let list = parts.pods.list().await;
    parts.metrics.pod_list(started, list.is_ok());
    let list = list?;
    // A kubelet that has just started lists its pods one by one, as it admits them again: until then absence says nothing.
    // Static pods are listed before the API server was ever asked: they don't show that the list is whole.
    let settled = SocketFile::age(&parts.kubelet_socket).is_some_and(|age| age >= parts.kubelet_settle_time)
        && list.pods.iter().any(|pod| !pod.is_static());
    let (notes, over, delivery) = {
        let mut allocator = lock(&parts.allocator);
        let notes = allocator.reconcile(&list, as_of, settled, assigned)?;
        (notes, allocator.take_over(), Arc::clone(allocator.delivery()))
    };
    for note in notes {
        info!("books: {note}");
    }
    delivery.remove_all(&over);
    Ok(list.pods)
}
