//! Which container an Allocate is for while the kubelet doesn't list its pods: it refuses, can't be reached, or is slow.
//!
//! Two others are asked then: the API server which pods are bound to this node, and the kubelet's PodResources, by name,
//! which of those it has. Let P be the pod under admission. It is among the pods that are left, for each of the steps
//! that leave pods out keeps P:
//!
//! 1. *Bound at a moment after the question.* The kubelet has P from the API server and asks us afterwards; the list is
//!    asked for after that and is no older than its question ([`BoundPods::list`]), so P is on it. A watch couldn't say
//!    this: it may lag behind the kubelet's own, and then another pod would be alone on it.
//! 2. *Lacks that many devices, and isn't past its admission*: as with the kubelet's list ([`crate::identity`]). A pod
//!    of which the kubelet has told container states is past it too, unless the books say that some of its containers
//!    were served: the kubelet tells them after an admission, not during one.
//! 3. *Known to the kubelet.* P is put into its pod manager just before its admission, and by the same goroutine that
//!    takes pods out (`HandlePodAdditions`, `HandlePodRemoves`), which waits for our answer. `Get` looks there
//!    (`kubeletPodsProvider.GetPodByName`). It leaves out what the kubelet knows to be over, which P isn't.
//! 4. *Without devices on the kubelet's record* for the container in question: they are recorded when we have answered.
//!    It is how a pod is told from its namesake, as `Get` knows names alone.
//!
//! So if one pod is left it is P, and if several are, nobody is served. Step 3 is what makes one of many: pods that are
//! bound and wait for their turn aren't in the pod manager yet, and pods refused there are over.
//!
//! P is not on the list if it is static, or was deleted by force since the kubelet took it in. Nobody is left then, unless
//! a second pod passes all the steps: one that the kubelet admitted without asking us, which takes that our resource
//! wasn't registered, and of whose containers it hasn't told a state yet. Kubelets without `Get` (before 1.34) serve
//! nobody this way, nor are units of `advertise: devices` counted: a call for those may come after its container has its
//! cards, when nothing is lacking any more.
//!
//! Shares end by the same two witnesses: a pod has ended if the API server shows it as Failed or Succeeded with all
//! containers terminated, which is what the kubelet wrote, or if it isn't bound here any more, has no cgroup, and the
//! kubelet doesn't know it. So the books stay right however long the kubelet's list is away, at the price of one list
//! of the API server for each container that comes and one a minute.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use divvy_api::ResourceName;

use crate::allocation::Refusal;
use crate::bound::{BoundPods, BoundPodsError};
use crate::kubelet::cgroups::Trace;
use crate::kubelet::client::PodListError;
use crate::kubelet::plugin::{PluginParts, lock};
use crate::kubelet::pod_resources::PodResourcesError;
use crate::kubelet::pods::PodView;
use crate::kubelet::socket::SocketFile;
use crate::ledger::PodRef;
use crate::ledger::reconcile::Assigned;
use crate::observer;

/// Longest time for all that is asked: a `Get` for each of 110 pods takes a second, by the kubelet's rate limit.
const DEADLINE: Duration = Duration::from_secs(3);

/// Pods among which the container under admission is.
#[derive(Debug)]
pub struct Among {
    /// Everything that is known of them.
    pub pods: Vec<Arc<PodView>>,
    /// Why they aren't the kubelet's list.
    pub unlisted: Option<PodListError>,
}

/// Why nobody but the kubelet tells.
#[derive(Debug, thiserror::Error)]
pub enum UnlistedError {
    /// The API server doesn't tell.
    #[error(transparent)]
    Bound(#[from] BoundPodsError),
    /// Nor does the kubelet by name.
    #[error(transparent)]
    PodResources(#[from] PodResourcesError),
    /// All of it takes too long.
    #[error("the API server and the kubelet's PodResources don't answer within {}s", DEADLINE.as_secs())]
    Timeout,
    /// A pod that isn't the API server's, such as a static one.
    #[error("pod {pod} has devices on the kubelet's record and isn't one of the API server's")]
    NotBound {
        /// `namespace/name`.
        pod: String,
    },
    /// The books can't be written.
    #[error("{0}")]
    Books(Box<Refusal>),
}

/// The pods that may be the one under admission, where the kubelet's list is refused with `list`.
pub async fn among(
    parts: &PluginParts,
    resource: &ResourceName,
    wanted: usize,
    list: PodListError,
) -> Result<Among, Refusal> {
    let Some(server) = &parts.bound else { return Err(list.into()) };
    let asked = async { known(parts, resource, bound(parts, server).await?, wanted).await };
    match in_time(asked).await {
        Ok(pods) => Ok(Among { pods, unlisted: Some(list) }),
        Err(instead) => Err(Refusal::Unlisted { list, instead: Box::new(instead) }),
    }
}

/// Looks for ended pods, where the kubelet's list is refused with `list`.
pub async fn look(parts: &PluginParts, list: PodListError) -> Result<(), Refusal> {
    let Some(server) = &parts.bound else { return Err(list.into()) };
    let looked = in_time(bound(parts, server)).await;
    looked.map(drop).map_err(|instead| Refusal::Unlisted { list, instead: Box::new(instead) })
}

async fn in_time<T>(asked: impl Future<Output = Result<T, UnlistedError>>) -> Result<T, UnlistedError> {
    tokio::time::timeout(DEADLINE, asked).await.unwrap_or(Err(UnlistedError::Timeout))
}

/// The pods bound to this node, after the books were brought in line with them.
async fn bound(parts: &PluginParts, server: &BoundPods) -> Result<Vec<Arc<PodView>>, UnlistedError> {
    let asked = lock(&parts.allocator).ask();
    let pods = server.list().await?;
    if let Some(pod) = lock(&parts.allocator).recorded_elsewhere(&pods) {
        return Err(UnlistedError::NotBound { pod });
    }
    let gone = gone(parts, &pods).await?;
    let settled = observer::settle(parts, |allocator| allocator.reconcile_bound(&pods, asked, &gone));
    settled.map_err(|refusal| UnlistedError::Books(Box::new(refusal)))?;
    Ok(pods)
}

/// Pods in the books, by UID, that aren't bound here any more and don't run.
async fn gone(parts: &PluginParts, bound: &[Arc<PodView>]) -> Result<HashSet<String>, UnlistedError> {
    // A kubelet that has just started doesn't know its static pods yet.
    if SocketFile::age(&parts.kubelet_socket).unwrap_or_default() < parts.kubelet_settle_time {
        return Ok(HashSet::new());
    }
    let mut missing = {
        let allocator = lock(&parts.allocator);
        let missing = allocator.missing(bound);
        let booked = missing.iter().filter_map(|uid| allocator.ledger().book().pod(uid));
        booked.map(|entry| entry.pod.clone()).collect::<Vec<_>>()
    };
    let uids = missing.iter().map(|pod| pod.uid.clone()).collect();
    let traces = parts.cgroups.lock().unwrap_or_else(PoisonError::into_inner).traces(uids);
    missing.retain(|pod| traces.get(&pod.uid) != Some(&Trace::Lingers));
    let has_heir =
        |pod: &PodRef| bound.iter().any(|other| (&other.namespace, &other.name) == (&pod.namespace, &pod.name));
    // Of a pod whose name has passed to another one PodResources would tell that one's devices.
    let (inherited, rest): (Vec<_>, Vec<_>) = missing.into_iter().partition(has_heir);
    let names: Vec<_> = rest.iter().map(|pod| (&*pod.namespace, &*pod.name)).collect();
    let known = parts.pod_resources.known(&names).await?;
    let unknown = rest.into_iter().zip(known).filter(|(_, known)| known.is_none()).map(|(pod, _)| pod);
    Ok(inherited.into_iter().chain(unknown).map(|pod| pod.uid).collect())
}

/// Those that may be under admission for `wanted` devices of `resource`, and that the kubelet knows without devices.
async fn known(
    parts: &PluginParts,
    resource: &ResourceName,
    pods: Vec<Arc<PodView>>,
    wanted: usize,
) -> Result<Vec<Arc<PodView>>, UnlistedError> {
    let candidates = lock(&parts.allocator).candidates(resource, pods, wanted);
    let names: Vec<_> = candidates.iter().map(|(pod, _)| (&*pod.namespace, &*pod.name)).collect();
    let known = parts.pod_resources.known(&names).await?;
    let lacks = |(candidate, known): ((Arc<PodView>, String), Option<Vec<Assigned>>)| {
        let (pod, container) = candidate;
        let has_devices = known?.iter().any(|assigned| assigned.container == container);
        (!has_devices).then_some(pod)
    };
    Ok(candidates.into_iter().zip(known).filter_map(lacks).collect())
}

// === impl Among ===

impl Among {
    /// A refusal that says whose pods it was found among.
    pub fn explain(&self, refusal: Refusal) -> Refusal {
        match (&self.unlisted, refusal) {
            (Some(list), Refusal::Identity(unresolved)) => {
                Refusal::IdentityUnlisted { unresolved, list: list.to_string() }
            }
            (_, refusal) => refusal,
        }
    }
}
