//! Candidates: the pods among which the one under admission is, and the reconciliation of the ledger with them.
//!
//! The kubelet's own list comes first. It shows what the API server says of a pod, so one that the kubelet rejected without
//! asking for its devices (topology, a forbidden sysctl, the resource of another plugin) looks for a moment as if it waited
//! for them. PodResources asks the kubelet's own status manager: where the list leaves several pods, those that `Get`
//! doesn't find are left out, and what is still ambiguous is refused.
//!
//! While the kubelet doesn't list its pods, because it refuses, can't be reached or is slow,
//! two others stand in: the API server's list of the pods bound to this node, and the kubelet's PodResources, which is asked
//! for each of them by name. Let P be the pod under admission. It is among the pods that are left, for each of the steps
//! that leave pods out keeps P:
//!
//! 1. *Bound at a moment after the question.* The kubelet has P from the API server and calls the plugin afterwards; the list is
//!    requested after that and is no older than its request ([`PodSource::bound_pods`]), so P is on it. A watch couldn't say
//!    this: it may lag behind the kubelet's own, and then another pod would be alone on it.
//! 2. *Lacks that many devices, and isn't past its admission*: as with the kubelet's list ([`crate::identity`]). A pod
//!    of which the kubelet has told container states is past it too, unless the ledger says that some of its containers
//!    were served: the kubelet tells them after an admission, not during one.
//! 3. *Known to the kubelet.* P is put into its pod manager just before its admission, and by the same goroutine that
//!    takes pods out (`HandlePodAdditions`, `HandlePodRemoves`), which waits for the plugin's answer. `Get` looks there
//!    (`kubeletPodsProvider.GetPodByName`). It leaves out what the kubelet knows to be over, which P isn't.
//! 4. *Without devices on the kubelet's record* for the container in question: they are recorded after the plugin's answer.
//!    It is how a pod is told from its namesake, as `Get` knows names alone.
//!
//! So if one pod is left it is P, and if several are, nobody is served. Step 3 is what makes one of many: pods that are
//! bound and wait for their turn aren't in the pod manager yet, and pods refused there are over.
//!
//! P is not on the list if it is static, or was deleted by force since the kubelet took it in. Nobody is left then, unless
//! a second pod passes all the steps: one that the kubelet admitted without a call, which takes that the resource
//! wasn't registered, and of whose containers it hasn't told a state yet. Kubelets without `Get` (before 1.34) serve
//! nobody this way, nor are units of `advertise: devices` counted: a call for those may come after its container has its
//! cards, when nothing is lacking any more.
//!
//! Shares end by the same two witnesses: a pod has ended if the API server shows it as Failed or Succeeded with all
//! containers terminated, which is what the kubelet wrote, or if it isn't bound here any more, has no cgroup, and the
//! kubelet doesn't know it. So the ledger stays right however long the kubelet's list is away, at the price of one list
//! of the API server for each container that comes and one a minute.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use divvy_api::ResourceName;
use tracing::debug;

use super::{Candidates, Daemon};
use crate::allocator::{Allocator, Call, Refusal, lock};
use crate::identity::Unresolved;
use crate::pod::{CgroupState, DeviceRecord, Pod, PodList, PodRef};
use crate::ports::{PodSource, PodSourceError};

/// Longest time to ask PodResources about pods without the kubelet's list: a `Get` for each of 110 pods takes a second, by the
/// kubelet's rate limit.
const RECORDS_DEADLINE: Duration = Duration::from_secs(3);
/// Longest time to ask which of several pods the kubelet has rejected, while the kubelet waits: enough for some 40 of
/// them.
const REJECTED_DEADLINE: Duration = Duration::from_millis(300);
/// Quiet periods (`kubeletSettleTime`) after which a kubelet's list is whole even if new pods keep coming: some hundred pods, each admitted
/// again within seconds.
const LONGEST_START: u32 = 30;

impl<S: PodSource> Daemon<S> {
    /// Lists the kubelet's pods, after the ledger was brought in line with them.
    pub async fn reconcile(&self) -> Result<Vec<Arc<Pod>>, Refusal> {
        self.reconcile_with(self.source.kubelet_pods()).await
    }

    /// Does the same for a call that nothing but the kubelet's list answers: better that a pod waits for a busy kubelet than
    /// that it fails.
    pub(crate) async fn reconcile_patiently(&self) -> Result<Vec<Arc<Pod>>, Refusal> {
        match self.reconcile().await {
            Err(Refusal::Pods(PodSourceError::KubeletPods(_))) => {
                self.reconcile_with(self.source.kubelet_pods_late()).await
            }
            reconciled => reconciled,
        }
    }

    async fn reconcile_with(
        &self,
        list: impl Future<Output = Result<PodList, PodSourceError>> + Send,
    ) -> Result<Vec<Arc<Pod>>, Refusal> {
        let asked = lock(&self.allocator).begin_list();
        let list = list.await?;
        let missing = lock(&self.allocator).missing(&list.pods);
        let cgroups = self.source.cgroups(missing).await;
        // A kubelet that has just started lists its pods one by one, as it admits them again: until then absence says
        // nothing. Static pods are listed before the API server was ever asked: they don't show that the list is whole.
        let age = self.source.kubelet_age();
        let has_api_server_pods = list.pods.iter().any(|pod| !pod.is_static());
        let may_be_whole = has_api_server_pods && age >= self.kubelet_settle_time;
        let is_old = age >= self.kubelet_settle_time * LONGEST_START;
        let reconcile = |allocator: &mut Allocator| {
            let is_quiet = allocator.quiet(&list) >= self.kubelet_settle_time || is_old;
            allocator.reconcile(&list, asked, may_be_whole && is_quiet, &cgroups)
        };
        self.apply(reconcile)?;
        if self.found_foreign(&list.pods).await {
            self.apply(reconcile)?;
        }
        Ok(list.pods)
    }

    /// Asks for the devices of pods of other systems that weren't on record at the start: they come from a plugin that is
    /// registered beside this one, or the kubelet had just started. Answers whether there are any.
    async fn found_foreign(&self, pods: &[Arc<Pod>]) -> bool {
        let untold = lock(&self.allocator).untold_foreign(pods);
        if untold.is_empty() {
            return false;
        }
        // Boxed, as it is large and rarely needed.
        match Box::pin(self.records(&untold)).await {
            Ok(records) => lock(&self.allocator).tell_foreign(pods, &untold, records),
            Err(error) => {
                debug!(%error, "PodResources query failed; cannot tell whether pods of other systems use GPUs");
                false
            }
        }
    }

    /// Brings the ledger in line by the API server and PodResources, where the kubelet's list is refused with `list`.
    pub async fn reconcile_unlisted(&self, list: PodSourceError) -> Result<(), Refusal> {
        self.instead_of(list, self.bound_pods()).await.map(drop)
    }

    /// Pods among which the one is that is to get what the call asks for.
    pub(crate) async fn candidates(&self, resource: &ResourceName, call: Call<'_>) -> Result<Candidates, Refusal> {
        match self.reconcile().await {
            Ok(pods) => Ok(self.without_rejected(resource, pods, call).await),
            Err(Refusal::Pods(list @ PodSourceError::KubeletPods(_))) => {
                let unlisted = Some(list.clone());
                match self.instead_of(list, self.unlisted_candidates(resource, call.size())).await {
                    Ok(pods) => Ok(Candidates { pods, unlisted, untold: None }),
                    // By default the daemon has no right to the API server's list, and a kubelet may have no `Get`.
                    Err(refusal) => match self.reconcile_with(self.source.kubelet_pods_late()).await {
                        Ok(pods) => Ok(self.without_rejected(resource, pods, call).await),
                        Err(_late) => Err(refusal),
                    },
                }
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// The kubelet's pods; where the call may be for several, without those that PodResources shows not to be under
    /// admission.
    async fn without_rejected(&self, resource: &ResourceName, mut pods: Vec<Arc<Pod>>, call: Call<'_>) -> Candidates {
        let contenders = lock(&self.allocator).contenders(resource, &pods, call);
        if contenders.is_empty() {
            return Candidates { pods, unlisted: None, untold: None };
        }
        let (names, containers): (Vec<PodRef>, Vec<&str>) =
            contenders.iter().map(|contender| (contender.pod.reference(), contender.name())).unzip();
        let records = match self.source.device_records(&names, REJECTED_DEADLINE).await {
            Ok(records) => records,
            Err(error) => return Candidates { pods, unlisted: None, untold: Some(error) },
        };
        for (pod, _) in names.iter().zip(&records).filter(|(_, records)| records.is_none()) {
            lock(&self.allocator).reject(&pod.uid);
        }
        let asked = names.iter().zip(containers).zip(&records);
        let over = asked.filter(|((_, container), records)| !lacks_devices(container, records.as_deref()));
        let over: HashSet<&str> = over.map(|((pod, _), _)| pod.uid.as_str()).collect();
        pods.retain(|pod| !over.contains(pod.uid.as_str()));
        Candidates { pods, unlisted: None, untold: None }
    }

    /// What `work` finds instead of the kubelet's list, which was refused with `list`.
    async fn instead_of<T: Send>(
        &self,
        list: PodSourceError,
        work: impl Future<Output = Result<Option<T>, Refusal>> + Send,
    ) -> Result<T, Refusal> {
        match work.await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(list.into()),
            Err(instead) => Err(Refusal::Unlisted { list, instead: Box::new(instead) }),
        }
    }

    /// The pods bound to this node, after the ledger was brought in line with them; `None` without an API server.
    async fn bound_pods(&self) -> Result<Option<Vec<Arc<Pod>>>, Refusal> {
        let asked = lock(&self.allocator).begin_list();
        let Some(pods) = self.source.bound_pods().await? else { return Ok(None) };
        if let Some(pod) = lock(&self.allocator).recorded_elsewhere(&pods) {
            return Err(PodSourceError::NotBound { pod }.into());
        }
        let gone = self.gone(&pods).await?;
        let reconcile = |allocator: &mut Allocator| allocator.reconcile_bound(&pods, asked, &gone);
        self.apply(reconcile)?;
        if self.found_foreign(&pods).await {
            self.apply(reconcile)?;
        }
        Ok(Some(pods))
    }

    /// Pods in the ledger, by UID, that aren't bound here any more and don't run.
    async fn gone(&self, bound: &[Arc<Pod>]) -> Result<HashSet<String>, PodSourceError> {
        // A kubelet that has just started doesn't know its static pods yet.
        if self.source.kubelet_age() < self.kubelet_settle_time {
            return Ok(HashSet::new());
        }
        let mut missing = lock(&self.allocator).missing_pods(bound);
        let cgroups = self.source.cgroups(missing.iter().map(|pod| pod.uid.clone()).collect()).await;
        missing.retain(|pod| cgroups.get(&pod.uid) != Some(&CgroupState::Exists));
        // Of a pod whose name has passed to another one PodResources would tell that one's devices.
        let (replaced, rest): (Vec<PodRef>, Vec<PodRef>) =
            missing.into_iter().partition(|pod| bound.iter().any(|other| other.has_name_of(pod)));
        let records = self.records(&rest).await?;
        let unknown = rest.into_iter().zip(records).filter(|(_, records)| records.is_none()).map(|(pod, _)| pod);
        Ok(replaced.into_iter().chain(unknown).map(|pod| pod.uid).collect())
    }

    async fn records(&self, pods: &[PodRef]) -> Result<Vec<Option<Vec<DeviceRecord>>>, PodSourceError> {
        self.source.device_records(pods, RECORDS_DEADLINE).await
    }

    /// Bound pods that may be under admission for `wanted` devices of `resource`, and that the kubelet knows without devices.
    async fn unlisted_candidates(
        &self,
        resource: &ResourceName,
        wanted: usize,
    ) -> Result<Option<Vec<Arc<Pod>>>, Refusal> {
        let Some(bound) = self.bound_pods().await? else { return Ok(None) };
        let lacking = lock(&self.allocator).lacking(resource, bound, wanted);
        let names: Vec<PodRef> = lacking.iter().map(|(pod, _)| pod.reference()).collect();
        let records = self.records(&names).await?;
        let lacking = lacking.into_iter().zip(records);
        let lacking = lacking.filter(|((_, container), records)| lacks_devices(container, records.as_deref()));
        Ok(Some(lacking.map(|((pod, _), _)| pod).collect()))
    }
}

/// Whether the kubelet has the pod, by what it has on record for it, and no devices for this container.
fn lacks_devices(container: &str, records: Option<&[DeviceRecord]>) -> bool {
    records.is_some_and(|records| records.iter().all(|record| record.container != container))
}

impl Candidates {
    /// A refusal that says among whose pods the one under admission was looked for.
    pub(crate) fn explain(&self, refusal: Refusal) -> Refusal {
        match (&self.unlisted, &self.untold, refusal) {
            (Some(list), _, Refusal::Identity(unresolved)) => {
                Refusal::IdentityUnlisted { unresolved, list: list.clone() }
            }
            (_, Some(records), Refusal::Identity(unresolved @ Unresolved::Ambiguous { .. })) => {
                Refusal::IdentityUntold { unresolved, records: records.clone() }
            }
            (_, _, refusal) => refusal,
        }
    }
}
