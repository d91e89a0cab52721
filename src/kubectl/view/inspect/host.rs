//! The Node that a `GpuNode` belongs to: whether its kubelet is alive, and still has a device plugin.

use std::collections::BTreeMap;

use divvy_api::ResourceNames;
use divvy_api::names::taint;
use divvy_api::pod::wire::Resources;
use divvy_api::quantity::parse_cpu;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde::{Deserialize, Serialize};

use super::report::age;

/// What is known of the Node.
#[derive(Clone, Debug)]
pub enum Host {
    /// Nothing: the user may not read Nodes.
    Unknown,
    /// There is none of that name.
    Gone,
    /// As it stands.
    There(Box<NodeView>),
}

/// The part of a Node that is read here.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Resource)]
#[resource(inherit = Node)]
pub struct NodeView {
    /// Name and labels.
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Spec {
    /// `kubectl cordon`.
    #[serde(default)]
    unschedulable: bool,
    #[serde(default)]
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Status {
    #[serde(default)]
    addresses: Vec<NodeAddress>,
    #[serde(default)]
    conditions: Vec<NodeCondition>,
    #[serde(default)]
    capacity: BTreeMap<String, String>,
    #[serde(default)]
    allocatable: BTreeMap<String, String>,
}

// === impl Host ===

impl Host {
    /// What keeps new pods away, and makes doubtful what the `GpuNode` says.
    ///
    /// A daemon that was killed leaves its `GpuNode` as it was, and one with nothing to say writes nothing, so the age of
    /// the object tells nothing. The kubelet does: it has no healthy device of a plugin that is gone, and after five
    /// minutes none at all (`endpointStopGracePeriod`). Looked for under stock names alone, because a `GpuNode` doesn't
    /// say what its resources are called, and only where Divvy's memory amount goes by its stock name too.
    ///
    /// `serves`: by the `GpuNode` some card is healthy, so that there should be devices.
    pub(super) fn problems(&self, serves: bool, now: Timestamp) -> Vec<String> {
        let node = match self {
            Self::Unknown => return Vec::new(),
            Self::Gone => return vec!["the Node is gone: this is what was last reported of it".to_owned()],
            Self::There(node) => node,
        };
        let NodeView { status, .. } = &**node;
        let mut problems: Vec<String> = node.not_ready(now).into_iter().collect();
        let names = ResourceNames::default();
        let mut devices = status.capacity.keys().filter(|name| names.counts_cards(name)).peekable();
        let known = serves && status.capacity.contains_key(names.memory.as_str()) && devices.peek().is_some();
        if known && devices.all(|name| status.allocatable.get(name).is_none_or(|healthy| healthy == "0")) {
            problems.push(format!(
                "the kubelet has no {} to give: divvy-node doesn't serve it, so this may be old",
                names.count
            ));
        }
        if node.is_cordoned() {
            problems.push("the Node is cordoned (spec.unschedulable)".to_owned());
        }
        problems
    }
}

impl Host {
    /// The first address of type `InternalIP`.
    pub(crate) fn internal_address(&self) -> Option<&str> {
        let Self::There(node) = self else { return None };
        let internal = node.status.addresses.iter().find(|address| address.type_ == "InternalIP");
        internal.map(|address| address.address.as_str())
    }
}

// === impl NodeView ===

impl NodeView {
    /// What it has for pods, in thousandths of CPU cores.
    pub(crate) fn cpu_milli(&self) -> Option<u32> {
        parse_cpu(self.status.allocatable.get("cpu")?).ok()
    }

    /// All that pods may request of it; `None` if it doesn't say, or not in quantities.
    pub(crate) fn all_allocatable(&self) -> Option<Resources> {
        serde_json::to_value(&self.status.allocatable).and_then(serde_json::from_value).ok()
    }

    /// Labels of the Node.
    pub(crate) fn labels(&self) -> &BTreeMap<String, String> {
        const NONE: &BTreeMap<String, String> = &BTreeMap::new();
        self.metadata.labels.as_ref().unwrap_or(NONE)
    }

    /// Taints of the Node.
    pub(crate) fn taints(&self) -> &[Taint] {
        &self.spec.taints
    }

    /// Taints that keep off pods which don't tolerate them.
    pub(crate) fn hard_taints(&self) -> impl Iterator<Item = &Taint> {
        self.taints().iter().filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"))
    }

    /// Whether it carries a taint that leads pods without GPUs elsewhere.
    pub(crate) fn has_soft_taint(&self) -> bool {
        let mut taints = self.spec.taints.iter();
        taints.any(|taint| taint::is_soft(&taint.key, &taint.effect))
    }

    /// `kubectl cordon`.
    pub(crate) fn is_cordoned(&self) -> bool {
        self.spec.unschedulable
    }

    /// How much of a resource it has for pods; `None` if it doesn't say.
    pub(crate) fn allocatable(&self, resource: &str) -> Option<&str> {
        self.status.allocatable.get(resource).map(String::as_str)
    }

    /// How much of a resource it has; `None` if it doesn't say.
    pub(crate) fn capacity(&self, resource: &str) -> Option<&str> {
        self.status.capacity.get(resource).map(String::as_str)
    }

    /// Resources that it has.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &str> {
        self.status.capacity.keys().map(String::as_str)
    }

    /// What its kubelet doesn't say, or says is wrong.
    pub(crate) fn not_ready(&self, now: Timestamp) -> Option<String> {
        let ready = self.status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let NodeCondition { reason, message, last_transition_time, .. } =
            ready.filter(|condition| condition.status != "True")?;
        let reason = reason.as_deref().unwrap_or_default();
        let message = message.as_deref().unwrap_or_default();
        let since = age(last_transition_time.as_ref(), now);
        Some(format!("the Node is not ready{since}, so this may be old ({reason}): {message}"))
    }
}
