//! The daemon's end: nothing more is sent to the node, what was sent is served, and then the session with the kubelet ends.
//!
//! # Why in this order
//!
//! From the end of the session on, the kubelet fails every pod that it admits for this node's GPUs (`devicesToAllocate` in
//! `cm/devicemanager/manager.go`: "no healthy devices present"), and a failed pod is never admitted again. So no pod may be
//! in the kubelet's queue by then. References are to Kubernetes 1.36.
//!
//! 1. **The Node stops offering.** In the round in which the condition `Draining` is published, the resources are taken out of the
//!    Node's status: not set to 0 or to what is held, *taken out*. kube-scheduler counts a resource that isn't there as 0
//!    (`fitsRequest` in `noderesources/fit.go`), so it sends nothing from then on, within milliseconds, with and without the
//!    extender. The kubelet, which compares pods with the same status once more, leaves out what isn't there
//!    (`removeMissingExtendedResources` in `lifecycle/predicate.go`), so pods that are in its queue pass. With a smaller amount
//!    instead they would fail there (`OutOfnvidia.com/gpumem`), unless it was the sum over all pods bound to the node, which
//!    nobody on the node knows. Of devices alone (`nvidia.com/gpu`) the kubelet would let any amount pass
//!    (`sanitizeNodeAllocatable`), as their allocation comes before.
//! 2. **Devices stay healthy.** Unhealthy ones would stop the scheduler up to 10 s later, at the kubelet's next status, and fail
//!    the kubelet's queue at once. That status also brings the devices, which the kubelet owns, back to the Node; the
//!    publisher takes them out again as soon as its watch shows them. A pod bound between is served like the others.
//! 3. **The queue is served** until it is empty as far as can be seen from here. The kubelet lists a pod only when its sync loop has
//!    come to it, just before it asks for its devices (`HandlePodAdditions`): of the queue behind it nothing is on any list of
//!    the kubelet. What shows it is that the kubelet goes on: calls, new pods on its list, and how old those are when they
//!    get there. So the end is [`SHORTEST_QUIET`], or as long as a pod was last seen to wait in the queue, without any of
//!    these. Where the daemon may list pods at the API server (`deploy/fallback`), that list has the last word: it has those
//!    in the queue too.
//! 4. **The session ends**, and the publisher takes the devices out once more: a status that the kubelet was about to write
//!    may have brought them back, and stands for up to 10 s, until the kubelet's next one says 0.
//!
//! What remains: pods that the kubelet takes up later than this wait, where the API server's list isn't granted; pods bound in the
//! milliseconds around the kubelet's own status; pods that name the node and pass no scheduler; and, at a kill without a
//! signal, all that are bound before the next daemon registers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use divvy_node_core::pod::{FIRST_SEEN, Pod};
use divvy_node_core::ports::PodSource;
use divvy_node_core::{Admissions, Daemon};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::apiserver::Announcement;

/// Longest wait for the condition to be written. While the API server is unreachable no pods are scheduled here.
const ANNOUNCING: Duration = Duration::from_secs(5);
/// Interval of requests for the kubelet's pods.
const INTERVAL: Duration = Duration::from_millis(500);
/// Shortest time for which the kubelet must not have admitted any pod: one that was just bound may be on no list yet.
const SHORTEST_QUIET: Duration = Duration::from_millis(1500);
/// Longest time for which a pod is believed to have waited in the kubelet's queue: `config.seen` may be of before a restart.
const LONGEST_LAG: Duration = Duration::from_secs(10);
/// Consecutive lists that may fail: a busy kubelet answers late.
const FAILURES: u32 = 3;

/// Returns when no more pods are waiting, and at once without an API server, where nothing can be published.
pub(super) async fn drain<S: PodSource>(daemon: &Daemon<S>, announcement: Option<Announcement>) {
    let Some(announcement) = announcement else { return };
    if tokio::time::timeout(ANNOUNCING, announcement.make()).await.is_err() {
        return warn!("shutting down without setting Draining: API server unreachable");
    }
    info!("shutting down: Draining condition set, serving pods already bound");
    let mut quiet = Quiet::new(Instant::now());
    let mut failures = 0;
    loop {
        tokio::time::sleep(INTERVAL).await;
        match daemon.admissions().await {
            Ok(admissions) => {
                failures = 0;
                if !admissions.waiting.is_empty() {
                    info!(pods = admissions.waiting.join(", "), "waiting for pods that have no GPUs yet");
                }
                if !quiet.is_over(admissions, Instant::now(), Timestamp::now()) {
                    continue;
                }
            }
            Err(refusal) => {
                failures += 1;
                if failures == FAILURES {
                    return warn!("failed to list pods that wait for GPUs: {refusal}");
                }
                continue;
            }
        }
        match daemon.bound_and_waiting().await {
            Ok(pods) if pods.is_empty() => return,
            Ok(pods) => {
                info!(pods = pods.join(", "), "waiting for pods that the kubelet has yet to take up");
                quiet.begin(Instant::now());
            }
            Err(error) => {
                return debug!(%error, "cannot tell whether pods are bound that the kubelet has yet to take up");
            }
        }
    }
}

/// Time without an admission.
struct Quiet {
    since: Instant,
    /// Longest time for which a pod was seen to wait for the kubelet's sync loop.
    lag: Duration,
    /// Pods on the last list, by UID; `None` before the first.
    listed: Option<HashSet<String>>,
    /// Calls so far.
    calls: u64,
}

// === impl Quiet ===

impl Quiet {
    fn new(now: Instant) -> Self {
        Self { since: now, lag: Duration::ZERO, listed: None, calls: 0 }
    }

    /// Starts over.
    fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// Takes in what the kubelet is doing at `now`, by the wall clock `today`. Returns whether it has been quiet for long enough.
    fn is_over(&mut self, admissions: Admissions, now: Instant, today: Timestamp) -> bool {
        let Admissions { pods, waiting, calls, is_answering } = admissions;
        let before = self.listed.take();
        let is_new = |pod: &Pod| before.as_ref().is_some_and(|before| !before.contains(&pod.uid));
        let new: Vec<_> = pods.iter().filter(|pod| is_new(pod)).collect();
        let lags = new.iter().filter_map(|pod| waited(pod, today));
        self.lag = lags.fold(self.lag, Duration::max).min(LONGEST_LAG);
        // Others tell how long the queue is, and not that it holds pods for this daemon. Extended resources alone are read.
        let requests = |pod: &&Arc<Pod>| pod.containers.iter().any(|container| !container.limits.is_empty());
        let is_busy = is_answering || !waiting.is_empty() || new.iter().any(requests) || calls != self.calls;
        self.listed = Some(pods.iter().map(|pod| pod.uid.clone()).collect());
        self.calls = calls;
        if is_busy {
            self.begin(now);
        }
        now.duration_since(self.since) >= self.lag.max(SHORTEST_QUIET)
    }
}

/// How long a pod that is new on the kubelet's list has waited to get there.
fn waited(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let seen: Timestamp = pod.annotations.get(FIRST_SEEN)?.parse().ok()?;
    now.duration_since(seen).try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use divvy_api::{ContainerKind, ContainerSpec};
    use divvy_node_core::pod::Phase;

    use super::*;

    /// A pod with a GPU that the kubelet has first seen so many milliseconds after the Unix epoch.
    fn pod(uid: &str, seen: i64) -> Arc<Pod> {
        let limits = [("nvidia.com/gpu".to_owned(), "1".to_owned())].into();
        let main = ContainerSpec { name: "main".to_owned(), kind: ContainerKind::App, index: 0, limits };
        let seen = Timestamp::from_millisecond(seen).expect("a time");
        Arc::new(Pod {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            name: uid.to_owned(),
            annotations: [(FIRST_SEEN.to_owned(), seen.to_string())].into(),
            containers: vec![main],
            phase: Phase::Pending,
            states: BTreeMap::new(),
        })
    }

    fn list(pods: &[Arc<Pod>], calls: u64) -> Admissions {
        Admissions { pods: pods.to_vec(), calls, ..Admissions::default() }
    }

    /// Whether it is over at each of these looks, half a second apart.
    fn looks(looks: impl IntoIterator<Item = Admissions>) -> Vec<bool> {
        let start = Instant::now();
        let mut quiet = Quiet::new(start);
        let look = |(at, admissions): (u32, Admissions)| {
            let now = INTERVAL * at;
            let today = Timestamp::from_millisecond(i64::try_from(now.as_millis()).expect("short")).expect("a time");
            quiet.is_over(admissions, start + now, today)
        };
        (1..).zip(looks).map(look).collect()
    }

    #[test]
    fn idle_kubelet_is_waited_for_three_looks() {
        let idle = || list(&[pod("a", 0)], 0);
        assert_eq!(looks([idle(), idle(), idle()]), [false, false, true]);
    }

    #[test]
    fn every_call_starts_the_wait_over() {
        let calls = [3, 3, 5, 5, 6, 6, 6, 6];
        let over = looks(calls.map(|calls| list(&[], calls)));
        assert_eq!(over, [false, false, false, false, false, false, false, true]);
        let answering = Admissions { is_answering: true, ..list(&[], 3) };
        assert_eq!(looks([answering.clone(), answering.clone(), answering]), [false; 3]);
    }

    #[test]
    fn waiting_and_new_pods_start_the_wait_over() {
        let waiting = Admissions { waiting: vec!["default/a".to_owned()], ..list(&[], 0) };
        assert_eq!(looks([waiting.clone(), waiting.clone(), waiting]), [false; 3]);
        let grows = |number: usize| list(&(0..number).map(|n| pod(&n.to_string(), 500)).collect::<Vec<_>>(), 0);
        assert_eq!(looks([grows(1), grows(2), grows(3), grows(3), grows(3)]), [false; 5]);
        let without_gpus = |number: usize| {
            let mut admissions = grows(number);
            admissions.pods.iter_mut().for_each(|pod| Arc::make_mut(pod).containers.clear());
            admissions
        };
        assert_eq!(looks([without_gpus(1), without_gpus(2), without_gpus(3)]), [false, false, true]);
    }

    #[test]
    fn wait_lasts_as_long_as_pods_queue_at_the_kubelet() {
        // Listed at 1 s, three seconds after the kubelet heard of it.
        let late = || list(&[pod("old", -100_000), pod("late", -2000)], 0);
        let over = looks(std::iter::once(list(&[pod("old", -100_000)], 0)).chain((0..7).map(|_| late())));
        assert_eq!(over, [false, false, false, false, false, false, false, true], "three seconds from then on");
    }
}
