//! What the daemon writes to its Node: amounts, labels, and the annotation that wakes waiting pods.

use std::collections::BTreeMap;

use divvy_api::names::annotation::LABELS;
use divvy_api::quantity::parse_count;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The part of a Node that is read here.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Resource)]
#[resource(inherit = Node)]
pub(in crate::apiserver) struct NodeView {
    pub(in crate::apiserver) metadata: ObjectMeta,
    #[serde(default)]
    pub(in crate::apiserver) spec: NodeSpecView,
    #[serde(default)]
    pub(in crate::apiserver) status: NodeStatusView,
}

/// The part of a Node's spec that is read here.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::apiserver) struct NodeSpecView {
    #[serde(default)]
    pub(in crate::apiserver) taints: Vec<Taint>,
}

/// The part of a Node's status that is read here.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::apiserver) struct NodeStatusView {
    #[serde(default)]
    pub(in crate::apiserver) capacity: BTreeMap<String, String>,
    #[serde(default)]
    pub(in crate::apiserver) allocatable: BTreeMap<String, String>,
}

/// State that the Node should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::apiserver) struct NodeFacts {
    /// Amounts by resource name.
    pub(in crate::apiserver) amounts: BTreeMap<String, u64>,
    /// Labels by key.
    pub(in crate::apiserver) labels: BTreeMap<String, String>,
}

/// Label of GPU feature discovery. Where it is set, all labels are left to it.
pub(in crate::apiserver) const FEATURE_DISCOVERY: &str = "nvidia.com/gfd.timestamp";

// === impl NodeView ===

impl NodeView {
    /// Whether a daemon has written to it.
    pub(in crate::apiserver) fn is_marked(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LABELS))
    }

    /// A merge patch that takes devices out of what is allocatable; `None` if none of them is there. The capacity of devices is
    /// the kubelet's alone.
    pub(in crate::apiserver) fn without_devices(&self, resources: &[&str]) -> Option<Value> {
        let gone = present(&self.status.allocatable, resources);
        (!gone.is_empty()).then(|| json!({ "status": { "allocatable": gone } }))
    }

    /// A merge patch that takes amounts out of the capacity, from which the kubelet would copy them, and out of what is
    /// allocatable; `None` if none of them is there.
    pub(in crate::apiserver) fn without_amounts(&self, resources: &[&str]) -> Option<Value> {
        let NodeStatusView { capacity, allocatable } = &self.status;
        let capacity = present(capacity, resources);
        let allocatable = present(allocatable, resources);
        let is_there = !capacity.is_empty() || !allocatable.is_empty();
        is_there.then(|| json!({ "status": { "capacity": capacity, "allocatable": allocatable } }))
    }

    /// A merge patch by which so many devices are allocatable; `None` if they are.
    pub(in crate::apiserver) fn with_devices(&self, devices: &BTreeMap<String, u64>) -> Option<Value> {
        let wrong = devices.iter().filter(|(name, count)| !says(&self.status.allocatable, name, **count));
        let wrong: Map<_, _> = wrong.map(|(name, count)| (name.clone(), json!(count.to_string()))).collect();
        (!wrong.is_empty()).then(|| json!({ "status": { "allocatable": wrong } }))
    }
}

// === impl NodeFacts ===

impl NodeFacts {
    /// A merge patch of the Node's status that gives `node` this state; `None` if it has it.
    pub(in crate::apiserver) fn patch(&self, node: &NodeView) -> Option<Value> {
        let mut patch = Map::new();
        let amounts = |said: &BTreeMap<String, String>| {
            let wrong = self.amounts.iter().filter(|(name, amount)| !says(said, name, **amount));
            wrong.map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect::<Map<_, _>>()
        };
        let capacity = amounts(&node.status.capacity);
        let allocatable = amounts(&node.status.allocatable);
        if !capacity.is_empty() || !allocatable.is_empty() {
            // The kubelet copies the one to the other, but only at its next status.
            patch.insert("status".to_owned(), json!({ "capacity": capacity, "allocatable": allocatable }));
        }
        let metadata = self.metadata(&node.metadata);
        if !metadata.is_empty() {
            patch.insert("metadata".to_owned(), metadata.into());
        }
        (!patch.is_empty()).then(|| patch.into())
    }

    /// Whether `node` offers what it was `offered` and differs by nothing but amounts that are smaller now.
    pub(in crate::apiserver) fn only_shrink(&self, node: &NodeView, offered: &BTreeMap<String, u64>) -> bool {
        let NodeStatusView { capacity, allocatable } = &node.status;
        let has = |name: &str, amount: u64| says(capacity, name, amount) && says(allocatable, name, amount);
        let may_stay = |(name, wanted): (&String, &u64)| {
            offered.get(name).is_some_and(|offered| wanted <= offered && has(name, *offered))
        };
        self.metadata(&node.metadata).is_empty() && self.amounts.iter().all(may_stay)
    }

    fn metadata(&self, node: &ObjectMeta) -> Map<String, Value> {
        let nothing = BTreeMap::new();
        let mut annotations = Map::new();
        let said = node.annotations.as_ref().unwrap_or(&nothing);
        let labelled = node.labels.as_ref().unwrap_or(&nothing);
        let own: Vec<&str> = said.get(LABELS).map(|text| text.split(',').collect()).unwrap_or_default();
        let wanted = if labelled.contains_key(FEATURE_DISCOVERY) { &nothing } else { &self.labels };
        // A label that somebody else wrote stays as it is.
        let ours = |key: &str| own.contains(&key) || !labelled.contains_key(key);
        let wanted: BTreeMap<&str, &String> =
            wanted.iter().map(|(key, value)| (key.as_str(), value)).filter(|(key, _)| ours(key)).collect();
        let mut labels: Map<String, Value> = wanted
            .iter()
            .filter(|(key, value)| labelled.get(**key) != Some(**value))
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let gone = own.iter().filter(|key| !wanted.contains_key(**key) && labelled.contains_key(**key));
        // With feature discovery there its labels go by the same names.
        labels.extend(
            gone.filter(|_| !labelled.contains_key(FEATURE_DISCOVERY)).map(|key| ((*key).to_owned(), Value::Null)),
        );
        let list = wanted.keys().copied().collect::<Vec<_>>().join(",");
        // Also where there are none: the annotation marks a Node that a daemon has written to.
        if said.get(LABELS) != Some(&list) {
            annotations.insert(LABELS.to_owned(), list.into());
        }
        let parts = [("annotations", annotations), ("labels", labels)];
        parts
            .into_iter()
            .filter(|(_, part)| !part.is_empty())
            .map(|(name, part)| (name.to_owned(), part.into()))
            .collect()
    }
}

/// Those of these resources that stand there, each `null`: a merge patch removes them.
fn present(said: &BTreeMap<String, String>, resources: &[&str]) -> Map<String, Value> {
    let there = resources.iter().filter(|name| said.contains_key(**name));
    there.map(|name| ((*name).to_owned(), Value::Null)).collect()
}

/// Whether an amount of this name stands there, however it is spelled.
fn says(said: &BTreeMap<String, String>, name: &str, amount: u64) -> bool {
    said.get(name).is_some_and(|text| parse_count(text) == Ok(amount))
}
