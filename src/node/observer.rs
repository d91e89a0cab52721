//! Looks at the kubelet's pods when nobody asks for devices: at start, to repair the books, and then for ended pods.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use divvy_runtime::logging::WarnOnce;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::allocation::{Allocator, Refusal};
use crate::kubelet::cgroups::PodCgroups;
use crate::kubelet::client::PodListError;
use crate::kubelet::plugin::{PluginParts, lock};
use crate::kubelet::pod_resources::PodResourcesError;
use crate::kubelet::pods::PodView;
use crate::kubelet::socket::SocketFile;
use crate::unlisted;

/// The kubelet caches our token and its access reviews for some minutes (`authenticationTokenWebhookCacheTTL`); the
/// question is repeated so that no Allocate pays for a fresh review.
const KEEP_WARM: Duration = Duration::from_secs(60);
/// A runtime makes directories of mount sources that are missing, also for a container whose pod has just ended: nobody's
/// directories are looked for this often.
const SWEEP: Duration = Duration::from_secs(60);
/// While the kubelet doesn't list its pods the API server is asked this often: it has many nodes.
const ELSEWHERE: Duration = Duration::from_secs(60);
/// Between tries at start, while the kubelet isn't up.
const RETRY: Duration = Duration::from_millis(500);

/// Settle times after which a kubelet's list is whole even if new pods keep coming: some hundred pods, each admitted
/// again within seconds.
const LONGEST_START: u32 = 30;

/// Repairs the books from the kubelet's pods and its records of devices (principle 2). Until that has succeeded once
/// nothing may be promised, so it is tried until `stop`; each problem is said once.
///
/// A kubelet that doesn't tell its pods, because the API server that reviews our token is away, isn't waited for where
/// the books know pods: their containers can't start without us. The first look that succeeds repairs the books, and
/// nothing is promised without one.
pub async fn recover(parts: &PluginParts, stop: &CancellationToken) {
    let mut warning = WarnOnce::default();
    while !stop.is_cancelled() {
        let problem = match try_recover(parts).await {
            Ok(()) => {
                let allocator = lock(&parts.allocator);
                allocator.remove_stale_directories();
                let pods = allocator.ledger().book().pods().count();
                return info!(pods, revision = allocator.ledger().revision(), "books agree with the kubelet");
            }
            Err(Unrecovered::PodList(problem)) => {
                let pods = lock(&parts.allocator).ledger().book().pods().count();
                if pods > 0 {
                    return warn!(
                        pods,
                        "books are not compared with the kubelet yet, known pods are served: {problem}"
                    );
                }
                problem
            }
            Err(Unrecovered::Else(problem)) => problem,
        };
        warning.warn(format!("not registering yet: {problem}"));
        tokio::select! { () = tokio::time::sleep(RETRY) => {}, () = stop.cancelled() => {} }
    }
}

/// What keeps the books from being compared with the kubelet's.
enum Unrecovered {
    /// It doesn't tell its pods. Its records of devices are kept.
    PodList(String),
    /// Anything else.
    Else(String),
}

async fn try_recover(parts: &PluginParts) -> Result<(), Unrecovered> {
    // Safe here, and only here: no Allocate of ours is in flight before we register.
    let failed = |error: PodResourcesError| Unrecovered::Else(error.to_string());
    let records = parts.pod_resources.list().await.map_err(failed)?;
    let units = parts.pod_resources.list_units().await.map_err(failed)?;
    {
        let mut allocator = lock(&parts.allocator);
        allocator.keep_records(records);
        allocator.keep_units(units);
    }
    match look(parts).await {
        Ok(_pods) => Ok(()),
        Err(Refusal::PodList(error)) => {
            unlisted::look(parts, error).await.map_err(|refusal| Unrecovered::PodList(refusal.to_string()))
        }
        Err(refusal) => Err(Unrecovered::Else(refusal.to_string())),
    }
}

/// Looks for ended pods every `interval`, and now and then for nothing, to keep the connection warm.
pub async fn watch(parts: PluginParts, interval: Duration, stop: CancellationToken) {
    let (mut last, mut swept) = (Instant::now(), Instant::now());
    let mut elsewhere = None::<Instant>;
    let mut warning = WarnOnce::default();
    loop {
        tokio::select! { () = tokio::time::sleep(interval) => {}, () = stop.cancelled() => return }
        if swept.elapsed() >= SWEEP {
            swept = Instant::now();
            lock(&parts.allocator).remove_stale_directories();
        }
        let booked: HashSet<String> =
            lock(&parts.allocator).ledger().book().pods().map(|entry| entry.pod.uid.clone()).collect();
        // Here, where nobody waits for it.
        cgroups(&parts).follow(&booked);
        if booked.is_empty() && last.elapsed() < KEEP_WARM {
            continue;
        }
        last = Instant::now();
        let looked = match look(&parts).await {
            Err(Refusal::PodList(_)) if elsewhere.is_some_and(|asked| asked.elapsed() < ELSEWHERE) => continue,
            Err(Refusal::PodList(error)) => {
                elsewhere = Some(Instant::now());
                unlisted::look(&parts, error).await
            }
            looked => looked.map(drop),
        };
        match looked {
            Ok(()) => warning.clear(),
            Err(refusal) => warning.warn(format!("ended pods keep their shares for now: {refusal}")),
        }
    }
}

/// Says once that the kubelet doesn't list its pods, and once that it does so again.
fn say(parts: &PluginParts, problem: Option<&PodListError>) {
    let mut warning = parts.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(problem) = problem.filter(|_| parts.bound.is_some()) {
        warning.warn(format!("pods are told by the API server and the kubelet's PodResources: {problem}"));
    } else if problem.is_none() && warning.current().is_some() {
        warning.clear();
        info!("the kubelet lists its pods again");
    }
}

fn cgroups(parts: &PluginParts) -> MutexGuard<'_, PodCgroups> {
    parts.cgroups.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kubelet's pods, fresh, after the books were brought in line with them.
pub async fn look(parts: &PluginParts) -> Result<Vec<Arc<PodView>>, Refusal> {
    let asked = lock(&parts.allocator).ask();
    let started = Instant::now();
    let list = parts.pods.list().await;
    parts.metrics.pod_list(started, list.is_ok());
    say(parts, list.as_ref().err());
    let list = list?;
    // A kubelet that has just started lists its pods one by one, as it admits them again: until then absence says nothing.
    // Static pods are listed before the API server was ever asked: they don't show that the list is whole.
    let age = SocketFile::age(&parts.kubelet_socket).unwrap_or_default();
    let heard_of_the_api_server = list.pods.iter().any(|pod| !pod.is_static());
    let missing = lock(&parts.allocator).missing(&list.pods);
    let traces = cgroups(parts).traces(missing);
    settle(parts, |allocator| {
        let settle = parts.kubelet_settle_time;
        let is_quiet = allocator.quiet(&list) >= settle || age >= settle * LONGEST_START;
        let settled = heard_of_the_api_server && age >= settle && is_quiet;
        allocator.reconcile(&list, asked, settled, &traces)
    })?;
    Ok(list.pods)
}

/// Takes live pods that the books don't know, and that the kubelet has given devices of ours, from its records. Their
/// shares count again; their directories went with the books' memory of them, so such a container finds no limits.
pub async fn restore(parts: &PluginParts) -> Result<(), Refusal> {
    let pods = look(parts).await?;
    let unbooked = lock(&parts.allocator).unbooked(&pods);
    let names: Vec<_> = unbooked.iter().map(|pod| (&*pod.namespace, &*pod.name)).collect();
    match parts.pod_resources.known(&names).await {
        Ok(known) => lock(&parts.allocator).keep_records(known.into_iter().flatten().flatten().collect()),
        Err(error) => warn!(%error, "not known who holds the devices of pods that the books don't know"),
    }
    look(parts).await.map(drop)
}

/// Brings the books in line as `reconcile` does, says what that changed, and has removed what is over with it.
pub(crate) fn settle(
    parts: &PluginParts,
    reconcile: impl FnOnce(&mut Allocator) -> Result<Vec<String>, Refusal>,
) -> Result<(), Refusal> {
    let (notes, over, delivery) = {
        let mut allocator = lock(&parts.allocator);
        let notes = reconcile(&mut allocator)?;
        (notes, allocator.take_over(), Arc::clone(allocator.delivery()))
    };
    if !notes.is_empty() {
        parts.booked.notify_one();
    }
    for note in notes {
        info!("books: {note}");
    }
    if !over.is_empty() {
        // A tenant may have left millions of files, and others wait for their Allocate.
        tokio::task::spawn_blocking(move || delivery.remove_all(&over));
    }
    Ok(())
}
