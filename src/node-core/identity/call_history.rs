//! What follows from the order of the kubelet's calls since the plugin last registered.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::{ContainerSpec, ResourceNames};
use serde::Serialize;

use super::{ContainerUnderAdmission, first_lacking};
use crate::ledger::Allocations;
use crate::pod::{ConnectionId, Phase, Pod, PodList};

/// Calls and lists of the kubelet since the plugin last registered.
#[derive(Debug, Default)]
pub struct CallHistory {
    /// UIDs of refused pods; the kubelet fails them for good.
    pub(super) refused: HashSet<String>,
    /// Pods that lacked devices while another pod was served, or when one of several was refused, and pods that the kubelet
    /// rejected: their admission has ended. By UID.
    passed_over: HashSet<String>,
    /// Containers that were served, by UID and name: the kubelet won't ask for them again.
    served: HashSet<(String, String)>,
    /// Pods on the last list, by UID, and the connection it came over; beside them pods in the ledger that were on an
    /// earlier list of that connection.
    listed: (Option<ConnectionId>, HashSet<String>),
    /// When a list last had a pod that the one before it hadn't.
    grown: Option<Instant>,
}

/// What follows for pods from the order of the kubelet's calls. Pods are given by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionOrder {
    /// Pods that the kubelet fails for good.
    pub refused: BTreeSet<String>,
    /// Pods whose admission has ended.
    pub passed_over: BTreeSet<String>,
    /// Containers that were served, with their pods.
    pub served: BTreeSet<(String, String)>,
}

// === impl CallHistory ===

impl CallHistory {
    /// Starts over after a restart of the kubelet. Refused pods stay refused.
    pub fn begin(&mut self) {
        self.passed_over.clear();
        self.served.clear();
    }

    /// What it says, in order.
    pub fn read(&self) -> AdmissionOrder {
        let refused = self.refused.iter().cloned().collect();
        let passed_over = self.passed_over.iter().cloned().collect();
        AdmissionOrder { refused, passed_over, served: self.served.iter().cloned().collect() }
    }

    /// Notes that the pod was refused.
    pub fn refuse(&mut self, uid: &str) {
        self.refused.insert(uid.to_owned());
    }

    /// Notes that this container is the one under admission, so that no other listed pod is.
    pub fn identified(
        &mut self,
        subject: ContainerUnderAdmission<'_>,
        pods: &[Arc<Pod>],
        allocations: &Allocations,
        names: &ResourceNames,
    ) {
        self.pass_over(pods, Some(subject.pod), allocations, names);
    }

    /// Notes that the admission of these pods has ended, but for one.
    pub fn pass_over(
        &mut self,
        pods: &[Arc<Pod>],
        but: Option<&Pod>,
        allocations: &Allocations,
        names: &ResourceNames,
    ) {
        let others = pods.iter().filter(|pod| but.is_none_or(|but| but.uid != pod.uid));
        let lacking = others.filter(|pod| first_lacking(pod, allocations, names).is_some());
        self.passed_over.extend(lacking.map(|pod| pod.uid.clone()));
    }

    /// Notes that the kubelet has rejected this pod. One that starts later may admit it once more.
    pub fn reject(&mut self, uid: &str) {
        self.passed_over.insert(uid.to_owned());
    }

    /// Notes that this container got its devices.
    pub fn served(&mut self, uid: &str, container: &str) {
        self.served.insert((uid.to_owned(), container.to_owned()));
    }

    /// Pods, by UID, that the kubelet at the other end of this connection has listed before. What is missing from its
    /// next list has ended: a kubelet lists pods from their arrival to their end, once it lists them at all.
    pub fn listed_before(&self, connection: Option<ConnectionId>) -> Option<&HashSet<String>> {
        let (known, pods) = &self.listed;
        (connection.is_some() && connection == *known).then_some(pods)
    }

    /// Time for which no new pod has come onto the kubelet's list. A kubelet that has just started lists its pods one by one,
    /// as it admits them: on a busy node that takes longer than any fixed time.
    pub fn quiet(&mut self, pods: &[Arc<Pod>], now: Instant) -> Duration {
        let (_, known) = &self.listed;
        if pods.iter().any(|pod| !known.contains(&pod.uid)) {
            self.grown = Some(now);
        }
        self.grown.map_or(Duration::ZERO, |grown| now.saturating_duration_since(grown))
    }

    /// Remembers the kubelet's list, and drops what is remembered of pods that aren't on it any more. One that is in the
    /// ledger stays known as listed before: it may run on, and then ends later.
    pub fn follow(&mut self, list: &PodList, allocations: &Allocations) {
        let mut listed: HashSet<String> = list.pods.iter().map(|pod| pod.uid.clone()).collect();
        let before = self.listed_before(list.connection).into_iter().flatten();
        listed.extend(before.filter(|uid| allocations.pod(uid).is_some()).cloned().collect::<Vec<_>>());
        self.listed = (list.connection, listed);
        let Self { refused, passed_over, served, listed: (_, listed), grown: _ } = self;
        refused.retain(|uid| listed.contains(uid));
        passed_over.retain(|uid| listed.contains(uid));
        served.retain(|(uid, _)| listed.contains(uid));
    }

    pub(super) fn has_served(&self, pod: &Pod, container: &ContainerSpec) -> bool {
        self.served.contains(&(pod.uid.clone(), container.name.clone()))
    }

    /// Whether the pod may be under admission.
    pub fn could_be_under_admission(&self, pod: &Pod) -> bool {
        !matches!(pod.phase, Phase::Failed | Phase::Succeeded)
            && !pod.has_started()
            && !self.refused.contains(&pod.uid)
            && !self.passed_over.contains(&pod.uid)
    }
}
