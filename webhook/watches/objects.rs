//! The fields of pods and Nodes that are decoded: most of their text is skipped.

use divvy_api::pod::wire::Resources;
use divvy_index::Unschedulable;
use divvy_index::demand::SchedulingConfig;
use divvy_index::pod::{ListedPod, PodView};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};

/// A pod, with the metadata by which a watch goes on.
#[derive(Clone, Debug, Resource)]
#[resource(inherit = Pod)]
pub(super) struct PodObject {
    pub(super) metadata: ObjectMeta,
    pub(super) pod: PodView,
}

/// A Node: its readiness, cordon, taints and allocatable resources.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Node)]
pub(super) struct NodeObject {
    pub(super) metadata: ObjectMeta,
    spec: Option<NodeSpec>,
    status: Option<NodeStatus>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeSpec {
    unschedulable: Option<bool>,
    taints: Option<Vec<Taint>>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeStatus {
    allocatable: Option<Resources>,
    conditions: Option<Vec<NodeCondition>>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

// === impl PodObject ===

impl<'de> Deserialize<'de> for PodObject {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let ListedPod { pod, resource_version } = ListedPod::deserialize(source)?;
        let metadata = ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            resource_version,
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, pod })
    }
}

// === impl NodeObject ===

impl NodeObject {
    /// What the index keeps of it. Labels say where pods may run that request GPUs: of a Node without GPUs nobody asks.
    pub(super) fn view(&self, config: &SchedulingConfig) -> divvy_index::NodeObject {
        let allocatable = self.status.as_ref().and_then(|status| status.allocatable.clone());
        let gpus = allocatable.as_ref().and_then(|all| all.amount(config.names.count.as_str()));
        divvy_index::NodeObject {
            unschedulable: self.unschedulable(),
            allocatable_gpus: gpus,
            labels: self.metadata.labels.clone().filter(|_| gpus.is_some()).unwrap_or_default(),
            taints: self.spec.iter().flat_map(|spec| &spec.taints).flatten().cloned().collect(),
            // Without CPU it isn't all that there is.
            allocatable: allocatable.filter(|all| all.cpu_milli > 0),
        }
    }

    /// Why it accepts no pods; a Node without a Ready condition counts as ready.
    fn unschedulable(&self) -> Option<Unschedulable> {
        let is_cordoned = self.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
        let mut conditions = self.status.iter().flat_map(|status| &status.conditions).flatten();
        let ready = conditions.find(|condition| condition.kind == "Ready");
        Unschedulable::from_node(is_cordoned, ready.is_none_or(|ready| ready.status == "True"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn allocatable_resources_are_read_where_present() {
        let view = |status: Value| {
            let node: NodeObject = serde_json::from_value(json!({ "metadata": {}, "status": status })).expect("a Node");
            node.view(&SchedulingConfig::default())
        };
        let gpus = |count: &str| view(json!({ "allocatable": { "nvidia.com/gpu": count } })).allocatable_gpus;
        assert_eq!([gpus("256"), gpus("0"), gpus("many")], [Some(256), Some(0), None]);
        let cpu = |status: Value| view(status).allocatable.map(|all| all.cpu_milli);
        assert_eq!(cpu(json!({ "allocatable": { "cpu": "95500m", "memory": "1Ti" } })), Some(95_500));
        assert_eq!(cpu(json!({ "allocatable": { "cpu": "many" } })), None);
        assert_eq!((cpu(json!({ "allocatable": null })), cpu(Value::Null)), (None, None));
    }

    #[test]
    fn labels_are_kept_of_nodes_with_gpus() {
        let labels = |status: Value| {
            let node = json!({ "metadata": { "labels": { "nvidia.com/gpu.clique": "d.0" } }, "status": status });
            serde_json::from_value::<NodeObject>(node).expect("a Node").view(&SchedulingConfig::default()).labels
        };
        let label = ("nvidia.com/gpu.clique".to_owned(), "d.0".to_owned());
        assert_eq!(labels(json!({ "allocatable": { "nvidia.com/gpu": "0" } })), [label].into());
        assert_eq!(labels(json!({ "allocatable": { "cpu": "8" } })), [].into());
    }

    #[test]
    fn own_taints_are_told_from_those_that_keep_pods_off() {
        let taints = |taints: Value| {
            let node = json!({ "metadata": {}, "spec": { "taints": taints } });
            let view = serde_json::from_value::<NodeObject>(node).expect("a Node").view(&SchedulingConfig::default());
            (view.soft_taints(), view.is_tainted())
        };
        let taint = |key: &str, effect: &str| json!({ "key": key, "effect": effect });
        assert_eq!(taints(Value::Null), ([false; 2], false));
        let ours = json!([
            taint("divvy.dev/cpu-for-gpus", "PreferNoSchedule"),
            taint("divvy.dev/free-gpus", "NoSchedule"),
            taint("nvidia.com/gpu", "PreferNoSchedule"),
        ]);
        assert_eq!(taints(ours), ([false, true], true));
        assert_eq!(taints(json!([taint("nvidia.com/gpu", "NoExecute")])), ([false; 2], true));
        let of_a_cordon = json!([taint("node.kubernetes.io/unschedulable", "NoSchedule")]);
        assert_eq!(taints(of_a_cordon), ([false; 2], false));
    }

    #[test]
    fn node_is_unschedulable_when_cordoned_or_not_ready() {
        let unschedulable = |spec: Value, conditions: Value| {
            let node = json!({ "metadata": { "name": "n1" }, "spec": spec, "status": { "conditions": conditions } });
            serde_json::from_value::<NodeObject>(node).expect("a Node").unschedulable()
        };
        let ready =
            |status| json!([{ "type": "DiskPressure", "status": "False" }, { "type": "Ready", "status": status }]);
        let cordoned = || json!({ "unschedulable": true });
        assert_eq!(unschedulable(json!({}), ready("True")), None);
        assert_eq!(unschedulable(cordoned(), ready("True")), Some(Unschedulable::Cordoned));
        assert_eq!(unschedulable(json!({}), ready("False")), Some(Unschedulable::NotReady));
        assert_eq!(
            unschedulable(cordoned(), ready("Unknown")),
            Some(Unschedulable::NotReady),
            "to uncordon it wouldn't help"
        );
        assert_eq!(unschedulable(Value::Null, Value::Null), None, "nothing is said yet");
    }
}
