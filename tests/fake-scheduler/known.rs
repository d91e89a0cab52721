//! What the scheduler knows of nodes, and of pods that have or are about to have one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::amounts::{Amounts, PODS};
use super::queue::Pod;
use super::selection;
use fake_apiserver::object::{name, text, uid};

/// A score of the scheduler's own plugins is at most this.
pub(crate) const MAX_SCORE: i64 = 100;

/// What `NodeAffinity` counts, beside `NodeResourcesFit` (`default_plugins.go`).
const AFFINITY_WEIGHT: i64 = 2;

/// Why single nodes can't take a pod, by their names.
pub(crate) type Reasons = BTreeMap<String, Vec<String>>;

/// Nodes and sums of what is requested on them.
#[derive(Debug, Default)]
pub(crate) struct Known {
    nodes: BTreeMap<String, Node>,
    /// Pods with a node, by UID.
    placed: HashMap<String, (String, Amounts)>,
    /// Sums over these, by node.
    requested: HashMap<String, Amounts>,
    /// Resources that an extender looks after alone.
    ignored: Vec<String>,
}

#[derive(Debug)]
struct Node {
    object: Arc<Value>,
    allocatable: Amounts,
}

// === impl Known ===

impl Known {
    pub(crate) fn new(ignored: Vec<String>) -> Self {
        Self { ignored, ..Self::default() }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// A pod as the scheduler counts it.
    pub(crate) fn read(&self, object: Arc<Value>) -> Pod {
        let amounts = Amounts::of_pod(&object, &self.ignored);
        Pod { object, amounts }
    }

    pub(crate) fn set_node(&mut self, object: Arc<Value>) {
        let allocatable = Amounts::of_node(&object);
        self.nodes.insert(name(&object).to_owned(), Node { object, allocatable });
    }

    pub(crate) fn drop_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// The pod counts on this node from now on, whether it is bound already or only about to be.
    pub(crate) fn place(&mut self, pod: &Value, node: &str) {
        self.forget(uid(pod));
        let amounts = Amounts::of_pod(pod, &self.ignored);
        self.requested.entry(node.to_owned()).or_default().add(&amounts);
        self.placed.insert(uid(pod).to_owned(), (node.to_owned(), amounts));
    }

    /// The pod counts nowhere any more. Whether it did.
    pub(crate) fn forget(&mut self, uid: &str) -> bool {
        let Some((node, amounts)) = self.placed.remove(uid) else { return false };
        self.requested.entry(node).or_default().subtract(&amounts);
        true
    }

    pub(crate) fn is_placed(&self, uid: &str) -> bool {
        self.placed.contains_key(uid)
    }

    /// What is left of a node's amount; below zero if more is requested than there is.
    fn free(&self, name: &str, node: &Node, resource: &str) -> i128 {
        node.allocatable.get(resource) - self.requested.get(name).map_or(0, |requested| requested.get(resource))
    }

    /// The nodes that could take the pod, and why the others can't.
    pub(crate) fn filter(&self, pod: &Pod) -> (Vec<String>, Reasons) {
        let (mut fit, mut reasons) = (Vec::new(), Reasons::new());
        for (name, node) in &self.nodes {
            let why = node.refuses(pod, |resource| self.free(name, node, resource));
            if why.is_empty() {
                fit.push(name.clone());
            } else {
                reasons.insert(name.clone(), why);
            }
        }
        (fit, reasons)
    }

    /// How well each of these nodes suits the pod.
    pub(crate) fn scores(&self, pod: &Pod, names: &[String]) -> Vec<i64> {
        let nodes = || names.iter().map(|name| (name, self.nodes.get(name)));
        let preference = |node: Option<&Node>| node.map_or(0, |node| selection::preference(&pod.object, &node.object));
        let most = nodes().map(|(_, node)| preference(node)).max().unwrap_or_default().max(1);
        let score = |(name, node): (&String, Option<&Node>)| {
            let left = node.map_or(0, |node| node.left(pod, |resource| self.free(name, node, resource)));
            left + AFFINITY_WEIGHT * MAX_SCORE * preference(node) / most
        };
        nodes().map(score).collect()
    }
}

// === impl Node ===

impl Node {
    /// In the words of the plugin that comes first, as only its are shown.
    fn refuses(&self, pod: &Pod, free: impl Fn(&str) -> i128) -> Vec<String> {
        let (node, pod_object) = (&*self.object, &*pod.object);
        if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
            return vec!["node(s) were unschedulable".to_owned()];
        }
        if let Some(taint) = selection::untolerated(pod_object, node) {
            let (key, value) = (text(taint, "/key"), text(taint, "/value"));
            return vec![format!("node(s) had untolerated taint {{{key}: {value}}}")];
        }
        if !selection::admits(pod_object, node) {
            return vec!["node(s) didn't match Pod's node affinity/selector".to_owned()];
        }
        let short = pod.amounts.0.iter().filter(|(resource, amount)| **amount > free(resource));
        let reason = |resource: &String| match resource.as_str() {
            PODS => "Too many pods".to_owned(),
            resource => format!("Insufficient {resource}"),
        };
        short.map(|(resource, _)| reason(resource)).collect()
    }

    /// The part of CPU and memory that would be left, 0 to 100 (`LeastAllocated`).
    fn left(&self, pod: &Pod, free: impl Fn(&str) -> i128) -> i64 {
        let parts = ["cpu", "memory"].map(|resource| {
            let all = self.allocatable.get(resource);
            let left = free(resource) - pod.amounts.get(resource);
            if all > 0 { left.max(0).saturating_mul(i128::from(MAX_SCORE)) / all } else { 0 }
        });
        i64::try_from(parts.iter().sum::<i128>() / 2).unwrap_or_default()
    }
}
