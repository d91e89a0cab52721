//! A Node of the API server, as far as it decides where pods go.

use std::collections::BTreeMap;

use divvy_api::names::taint;
use divvy_api::pod::wire::Resources;
use k8s_openapi::api::core::v1::Taint;

use crate::nodes::Unschedulable;

/// A Node, as far as it decides where pods go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeObject {
    /// Why the scheduler gives it no pods.
    pub unschedulable: Option<Unschedulable>,
    /// `status.allocatable`, where known.
    pub allocatable: Option<Resources>,
    /// Allocatable devices of the resource that counts GPUs. The kubelet sets it to 0 when the device plugin is gone, and keeps
    /// it there (`pkg/kubelet/nodestatus/setters.go: MachineInfo`). `None`: no plugin has ever registered it.
    pub allocatable_gpus: Option<u64>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
}

// === impl NodeObject ===

impl NodeObject {
    /// Which of Divvy's own [soft taints](taint::SOFT) it carries.
    pub fn soft_taints(&self) -> [bool; 2] {
        taint::SOFT.map(|key| self.taints.iter().any(|taint| taint.key == key && taint.effect == taint::EFFECT))
    }

    /// Whether a taint keeps off pods that don't tolerate it, for good: Kubernetes' own come and go, with cordons and with
    /// conditions such as disk pressure.
    pub fn is_tainted(&self) -> bool {
        self.hard_taints().any(|taint| !taint.key.starts_with("node.kubernetes.io/"))
    }

    fn hard_taints(&self) -> impl Iterator<Item = &Taint> {
        self.taints.iter().filter(|taint| taint.effect != taint::EFFECT)
    }

    /// Whether nothing but soft taints differs.
    pub(crate) fn schedules_like(&self, other: &Self) -> bool {
        let Self { unschedulable, allocatable, allocatable_gpus, labels, .. } = self;
        *unschedulable == other.unschedulable
            && *allocatable == other.allocatable
            && *allocatable_gpus == other.allocatable_gpus
            && *labels == other.labels
            && self.hard_taints().eq(other.hard_taints())
    }
}
