//! Nodes and pods as kube-scheduler looks at them, beside their GPUs.

use std::collections::HashMap;

use divvy_api::ContainerKind;
use divvy_api::pod::{PodSum, peak};
use divvy_api::quantity::parse_bytes;
use divvy_index::pod::PodView;
use k8s_openapi::api::core::v1::{Container, Pod, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde::{Deserialize, Deserializer, de};

use crate::view::inspect::NodeView;

/// A pod.
#[derive(Clone, Debug)]
pub(super) struct LivePod {
    /// What decides its GPUs.
    pub(super) view: PodView,
    /// Request of host memory in MiB.
    pub(super) memory: u32,
    pub(super) tolerations: Vec<Toleration>,
    /// Whether it belongs to its node, as a DaemonSet's pod or a static one does: it comes with the node.
    pub(super) is_of_node: bool,
}

/// A Node.
#[derive(Clone, Debug)]
pub(super) struct LiveNode {
    pub(super) name: String,
    /// Allocatable CPU in thousandths of a core.
    pub(super) cpu: u32,
    /// Allocatable memory in MiB.
    pub(super) memory: u32,
    /// Whether it is cordoned or not ready.
    pub(super) is_closed: bool,
    /// That keep off pods which don't tolerate them.
    pub(super) taints: Vec<Taint>,
}

/// Bytes.
#[derive(Clone, Copy, Debug, Default)]
struct HostMemory(u64);

/// CPU in thousandths of a core, and memory in MiB, that these pods request, by node.
pub(super) fn requested_of_nodes<'a>(pods: impl Iterator<Item = &'a LivePod>) -> HashMap<&'a str, (u32, u32)> {
    let mut requested: HashMap<&str, (u32, u32)> = HashMap::new();
    for pod in pods {
        let Some(node) = &pod.view.node else { continue };
        let (cpu, memory) = requested.entry(node).or_default();
        (*cpu, *memory) = (cpu.saturating_add(pod.view.requests.cpu_milli), memory.saturating_add(pod.memory));
    }
    requested
}

// === impl LivePod ===

impl<'de> Deserialize<'de> for LivePod {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(source)?;
        let view = PodView::deserialize(&value).map_err(de::Error::custom)?;
        let Pod { metadata, spec, .. } = Pod::deserialize(value).map_err(de::Error::custom)?;
        let spec = spec.unwrap_or_default();
        let of = |kind: fn(&Container) -> ContainerKind, containers: &[Container]| {
            containers.iter().map(|container| (kind(container), requested(container))).collect::<Vec<_>>()
        };
        let init = of(kind_of_init, spec.init_containers.as_deref().unwrap_or_default());
        let apps = of(|_| ContainerKind::App, &spec.containers);
        let overhead = spec.overhead.as_ref().and_then(|overhead| overhead.get("memory")).map(HostMemory::new);
        let memory = peak(init.into_iter().chain(apps)).plus(overhead.unwrap_or_default());
        let owners = metadata.owner_references.unwrap_or_default();
        Ok(Self {
            view,
            memory: memory.mib(),
            tolerations: spec.tolerations.unwrap_or_default(),
            is_of_node: owners.iter().any(|owner| matches!(&*owner.kind, "DaemonSet" | "Node")),
        })
    }
}

fn kind_of_init(container: &Container) -> ContainerKind {
    if container.restart_policy.as_deref() == Some("Always") { ContainerKind::Sidecar } else { ContainerKind::Init }
}

fn requested(container: &Container) -> HostMemory {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.and_then(|requests| requests.get("memory")).map(HostMemory::new).unwrap_or_default()
}

// === impl LiveNode ===

impl LiveNode {
    /// CPU and memory that are left where pods request so much of each node.
    pub(super) fn without(&self, requested: &HashMap<&str, (u32, u32)>) -> (u32, u32) {
        let (cpu, memory) = requested.get(&*self.name).copied().unwrap_or_default();
        (self.cpu.saturating_sub(cpu), self.memory.saturating_sub(memory))
    }

    /// A Node that says neither CPU nor memory has none.
    pub(super) fn new(node: &NodeView) -> Self {
        let memory = node.allocatable("memory").and_then(|text| parse_bytes(text).ok());
        Self {
            name: node.name_any(),
            cpu: node.cpu_milli().unwrap_or(0),
            memory: u32::try_from(memory.unwrap_or(0) >> 20).unwrap_or(u32::MAX),
            is_closed: node.is_cordoned() || node.not_ready(Timestamp::now()).is_some(),
            taints: node.hard_taints().cloned().collect(),
        }
    }
}

// === impl HostMemory ===

impl HostMemory {
    /// What isn't a quantity counts nothing.
    fn new(quantity: &Quantity) -> Self {
        Self(parse_bytes(&quantity.0).unwrap_or(0))
    }

    fn mib(self) -> u32 {
        u32::try_from(self.0.div_ceil(1 << 20)).unwrap_or(u32::MAX)
    }
}

impl PodSum for HostMemory {
    fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &serde_json::Value) -> LivePod {
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": "o" }]);
        serde_json::from_value(json!({ "metadata": { "name": "a", "ownerReferences": owner }, "spec": spec }))
            .expect("a pod")
    }

    #[test]
    fn memory_is_what_the_pod_needs_at_its_peak() {
        let container = |name: &str, memory: &str, policy: Option<&str>| {
            json!({
                "name": name, "image": "x", "restartPolicy": policy,
                "resources": { "requests": { "memory": memory, "cpu": "1" } },
            })
        };
        let pod = pod(&json!({
            "initContainers": [container("mesh", "100Mi", Some("Always")), container("download", "1Gi", None)],
            "containers": [container("main", "500Mi", None), container("log", "one gigabyte", None)],
            "overhead": { "memory": "1k" },
        }));
        assert_eq!((pod.memory, pod.view.requests.cpu_milli, pod.is_of_node), (1125, 3000, true));
    }

    #[test]
    fn pod_without_a_spec_requests_nothing() {
        let pod: LivePod = serde_json::from_value(json!({ "metadata": { "name": "a" } })).expect("a pod");
        assert_eq!((pod.memory, pod.is_of_node, pod.tolerations.len()), (0, false, 0));
    }
}
