//! The part of a pod that decides its GPUs.

mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_api::ContainerSpec;
use divvy_api::annotation::{self, Planned};
use divvy_api::names::GATE;
use divvy_api::names::annotation::PLANNED;
use divvy_api::pod::wire::Resources;
use k8s_openapi::jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::node_selection::NodeSelection;
use crate::pod_group::PodGroup;

/// The few fields of `v1.Pod` that are read here. Decoded from the API's JSON; whatever may be absent or null may be so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodView {
    /// `metadata.uid`, never reused.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Node that it is bound to.
    pub node: Option<String>,
    /// Node that it is to be bound to if that can still hold it (`status.nominatedNodeName`): where pods are being evicted for
    /// it, or where GPUs are planned for it.
    pub nominated: Option<String>,
    /// Whether its scheduler has found no node for it (condition `PodScheduled` with reason `Unschedulable`).
    pub is_unschedulable: bool,
    /// Whether its condition `divvy.dev/Placed` is True.
    pub is_placed: bool,
    /// `spec.priority`; 0 if it has none.
    pub priority: i32,
    /// Succeeded or Failed.
    pub ended: bool,
    /// When it ends, if it hasn't.
    pub end: PodEnd,
    /// Group of pods that it is scheduled with.
    pub group: Option<Arc<PodGroup>>,
    /// What it requests of a Node, as the scheduler adds it up.
    pub requests: Resources,
    /// What decides by whom, when and where it is scheduled.
    pub scheduling: Arc<SchedulingTerms>,
    /// Annotations with Divvy's prefix.
    pub annotations: BTreeMap<String, String>,
    /// Containers in admission order: init containers as listed, then app containers. Only extended resources of their limits
    /// are kept.
    pub containers: Vec<ContainerSpec>,
}

/// What beside its requests decides by whom, when and where a pod is scheduled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulingTerms {
    /// Scheduler that is to bind it (`spec.schedulerName`).
    pub scheduler: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// What has it kept from the scheduler (`spec.schedulingGates`).
    pub gates: Vec<String>,
    /// Which Nodes it may run on.
    pub selection: NodeSelection,
    /// Whether no pods may be evicted for it (`spec.preemptionPolicy: Never`).
    pub never_preempts: bool,
}

/// When a pod ends, by its own object; what is likelier to end soon comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "end", rename_all = "camelCase")]
pub enum PodEnd {
    /// Deleted: it is gone at this time at the latest (`metadata.deletionTimestamp`), unless its node doesn't answer.
    Deleted {
        /// In UTC.
        #[serde(serialize_with = "display")]
        at: Timestamp,
    },
    /// The kubelet ends it at this time (`spec.activeDeadlineSeconds`).
    Deadline {
        /// In UTC.
        #[serde(serialize_with = "display")]
        at: Timestamp,
    },
    /// Once its containers have done their work (`restartPolicy` `Never` or `OnFailure`).
    Completes,
    /// Nothing is known of it.
    #[default]
    Unknown,
    /// Not before somebody deletes it (`restartPolicy` `Always`).
    Open,
}

fn display<S: Serializer>(value: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// A pod as lists and watches of the API server bring it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedPod {
    /// The pod.
    pub pod: PodView,
    /// `metadata.resourceVersion`, from which a watch goes on.
    pub resource_version: Option<String>,
}

// === impl PodView ===

impl PodView {
    /// GPUs that were planned for it, as its annotation names them.
    pub fn planned(&self) -> Option<Planned> {
        annotation::decode(self.annotations.get(PLANNED)?).ok()
    }
}

// === impl SchedulingTerms ===

impl SchedulingTerms {
    /// Whether Divvy keeps it from the scheduler.
    pub fn has_our_gate(&self) -> bool {
        self.gates.iter().any(|gate| gate == GATE)
    }

    /// Whether nobody but Divvy does.
    pub fn is_ours(&self) -> bool {
        self.has_our_gate() && !self.has_other_gates()
    }

    /// Whether somebody else does.
    pub fn has_other_gates(&self) -> bool {
        self.gates.iter().any(|gate| gate != GATE)
    }
}

#[cfg(test)]
mod tests;
