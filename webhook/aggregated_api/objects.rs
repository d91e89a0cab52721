//! What a `GpuNode` says in the words of nvidia-gpu-scheduler: a `PodResource` for each pod that holds GPUs, a `GpuInfo` for the
//! node. Pure. What the fields' documentation says here, `kubectl explain` says.
//!
//! Fields that a `GpuNode` doesn't have are left out: `device_brand` and `device_busid`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use divvy_api::gpunode::{GpuNodeReport, MOST_CARDS, ShareStatus};
use divvy_api::{Card, CardId};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use schemars::JsonSchema;
use serde::Serialize;

/// Shares of a node that are served, at most: several times the containers that a kubelet runs.
pub const MOST_SHARES: usize = 4096;

/// The API group.
pub const GROUP: &str = "metrics.nvidia.com";
/// The only version of the group.
pub const VERSION: &str = "v1alpha1";
/// Group and version, as objects state them.
pub const API_VERSION: &str = "metrics.nvidia.com/v1alpha1";

/// A served kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServedKind {
    /// Pods that hold GPUs.
    PodResource,
    /// Nodes with GPUs.
    GpuInfo,
}

/// A pod, as shares name it. The UID comes last: two pods of one name are neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    /// Namespace and name.
    pub name: PodName,
    /// UID.
    pub uid: Arc<str>,
}

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodName {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub pod: Arc<str>,
}

/// The GPUs of a node that each pod's containers hold shares of.
pub type NodePods = BTreeMap<PodKey, Vec<ContainerDevices>>;

/// A node as it reports itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// The node's name.
    pub name: Arc<str>,
    /// UID of the `GpuNode`.
    pub uid: Option<String>,
    /// When the `GpuNode` was written last.
    pub reported: Option<String>,
    /// What the node has.
    pub info: GpuInfo,
    /// GPUs of each pod's containers.
    pub pods: NodePods,
}

/// What is reported
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PodResourceSpec {
    /// Name of the pod
    pub pod_name: String,
    /// Namespace of the pod
    pub pod_namespace: String,
    /// Containers that hold GPUs
    pub containers_device: Vec<ContainerDevices>,
}

/// How current it is
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PodResourceStatus {
    /// When its node reported the GPUs; after a restart of the server, the node's latest report
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_changed_time: Option<String>,
}

/// A container
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ContainerDevices {
    /// Name of the container
    pub container_name: String,
    /// GPUs that it holds shares of
    pub device_info: Vec<Device>,
}

/// A GPU
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Device {
    /// UUID
    pub device_id: CardId,
    /// Product name as NVML gives it; none for a GPU that the node doesn't report
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_model: Option<String>,
    /// Name of the node
    pub device_node: String,
    /// Unhealthy, or NotReported if a container holds it and the node doesn't report it; none for a healthy one
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_problem: Option<&'static str>,
}

/// A node and its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuInfo {
    /// `spec`.
    pub spec: GpuInfoSpec,
    /// `status`.
    pub status: GpuInfoStatus,
}

/// What is reported
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GpuInfoSpec {
    /// Name of the node
    pub device_node: String,
    /// GPUs by UUID
    pub device_infos: BTreeMap<CardId, Device>,
    /// UUIDs by model in lower case
    pub device_models: BTreeMap<String, Vec<CardId>>,
    /// When the GpuNode was written last
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_time: Option<String>,
    /// GPUs of which a container holds a share
    pub device_busy: BTreeSet<CardId>,
}

/// How current it is
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GpuInfoStatus {
    /// Condition Ready of the GpuNode: True, False or UnKnow
    #[schemars(with = "String")]
    pub node_health: NodeHealth,
    /// Since when that is so
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_last_health_time: Option<String>,
}

/// Health in nvidia-gpu-scheduler's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum NodeHealth {
    /// Ready.
    True,
    /// Not ready.
    False,
    /// Nobody knows: written as there.
    #[default]
    UnKnow,
}

// === impl ServedKind ===

impl ServedKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::PodResource, Self::GpuInfo];

    /// `kind` of an object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PodResource => "PodResource",
            Self::GpuInfo => "GpuInfo",
        }
    }

    /// Resource in a path.
    pub fn plural(self) -> &'static str {
        match self {
            Self::PodResource => "podresources",
            Self::GpuInfo => "gpuinfos",
        }
    }
}

// === impl PodName ===

impl PodName {
    /// Name of an object: `<namespace>.<pod>`, which is unambiguous, as a namespace has no dot. After a node was lost, its report
    /// may still show a pod of the name that another node runs by now: all UIDs but one stand in the name then, behind a colon,
    /// which no pod's name has.
    pub fn object_name(&self, uid: Option<&str>) -> String {
        let Self { namespace, pod } = self;
        uid.map_or_else(|| format!("{namespace}.{pod}"), |uid| format!("{namespace}.{pod}:{uid}"))
    }
}

// === impl NodeView ===

impl NodeView {
    /// Why a report is too large to be served.
    pub fn excess(node: &GpuNodeReport) -> Option<String> {
        let too_many =
            |what, number, most| (number > most).then(|| format!("{number} {what}: at most {most} are served"));
        too_many("GPUs", node.node.cards.len(), MOST_CARDS)
            .or_else(|| too_many("shares", node.shares.len(), MOST_SHARES))
    }

    /// Reads a report. What can't be read is a node of which nothing is known.
    pub fn new(metadata: &ObjectMeta, node: Option<&GpuNodeReport>) -> Self {
        let name: Arc<str> = metadata.name.as_deref().unwrap_or_default().into();
        let reported = reported(metadata);
        let empty = GpuNodeReport::default();
        let node = node.unwrap_or(&empty);
        let cards: BTreeMap<&CardId, &Card> = node.node.cards.iter().map(|card| (&card.id, card)).collect();
        let device = |id: &CardId| device(id, cards.get(id).copied(), &name);
        let mut models: BTreeMap<String, Vec<CardId>> = BTreeMap::new();
        for (id, card) in &cards {
            models.entry(card.model.trim().to_lowercase()).or_default().push((*id).clone());
        }
        let busy = node.shares.iter().map(|share| &share.card).filter(|id| cards.contains_key(id));
        let spec = GpuInfoSpec {
            device_node: name.to_string(),
            device_infos: cards.keys().map(|id| ((*id).clone(), device(id))).collect(),
            device_models: models,
            report_time: reported.clone(),
            device_busy: busy.cloned().collect(),
        };
        let info = GpuInfo { spec, status: health(&node.conditions) };
        let pods = pods(&node.shares, device);
        Self { name, uid: metadata.uid.clone(), reported, info, pods }
    }
}

/// When somebody wrote the object last.
fn reported(metadata: &ObjectMeta) -> Option<String> {
    let entries = metadata.managed_fields.iter().flatten();
    entries.filter_map(|entry| entry.time.as_ref()).max().map(|time| time.0.to_string())
}

fn device(id: &CardId, card: Option<&Card>, node: &str) -> Device {
    let problem = match card {
        None => Some("NotReported"),
        Some(card) => (!card.is_healthy()).then_some("Unhealthy"),
    };
    Device {
        device_id: id.clone(),
        device_model: card.map(|card| card.model.to_string()),
        device_node: node.to_owned(),
        device_problem: problem,
    }
}

fn health(conditions: &[Condition]) -> GpuInfoStatus {
    let Some(ready) = conditions.iter().find(|condition| condition.type_ == "Ready") else {
        return GpuInfoStatus::default();
    };
    let node_health = match &*ready.status {
        "True" => NodeHealth::True,
        "False" => NodeHealth::False,
        _ => NodeHealth::UnKnow,
    };
    GpuInfoStatus { node_health, node_last_health_time: Some(ready.last_transition_time.0.to_string()) }
}

/// The GPUs of each pod's containers, in the order of the report. A namespace with a dot is none: what claims to be there is
/// passed over, or it could take another pod's name; as is what has no UID, which would come first among those of a name.
fn pods(shares: &[ShareStatus], device: impl Fn(&CardId) -> Device) -> NodePods {
    let mut pods = NodePods::new();
    for share in shares.iter().filter(|share| !share.namespace.contains('.') && !share.pod_uid.is_empty()) {
        let name = PodName { namespace: share.namespace.as_str().into(), pod: share.pod.as_str().into() };
        let containers = pods.entry(PodKey { name, uid: share.pod_uid.as_str().into() }).or_default();
        let known = containers.iter().position(|it| it.container_name == share.container);
        let at = known.unwrap_or_else(|| {
            containers.push(ContainerDevices { container_name: share.container.clone(), device_info: Vec::new() });
            containers.len() - 1
        });
        containers[at].device_info.push(device(&share.card));
    }
    pods
}

#[cfg(test)]
mod tests;
