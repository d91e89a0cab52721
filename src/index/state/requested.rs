//! Pods on nodes, as the API server has them, and what they request: a GPU is of no use where its pod finds no CPU or no memory.

use std::collections::HashMap;
use std::sync::Arc;

use divvy_api::pod::wire::Resources;
use foldhash::fast::RandomState;

use crate::nodes::PODS;

/// Sums of requests by node, as the scheduler has them.
#[derive(Debug, Default)]
pub(crate) struct Requested {
    /// Pods on nodes, by UID, also those that ask for no GPUs.
    pods_on_nodes: HashMap<Arc<str>, PodOnNode, RandomState>,
    sums: HashMap<Arc<str>, Resources, RandomState>,
}

#[derive(Debug)]
struct PodOnNode {
    node: Arc<str>,
    namespace: Arc<str>,
    requests: Resources,
}

// === impl Requested ===

impl Requested {
    /// Counts a pod's requests on a node, and returns the nodes where that changes what is free.
    pub(crate) fn add(
        &mut self,
        uid: &Arc<str>,
        namespace: Arc<str>,
        node: &str,
        requests: &Resources,
    ) -> Vec<Arc<str>> {
        if self.pods_on_nodes.get(uid).is_some_and(|known| &*known.node == node && known.requests == *requests) {
            return Vec::new();
        }
        let left = self.remove(uid);
        let node = self.sums.get_key_value(node).map_or_else(|| node.into(), |(node, _)| Arc::clone(node));
        let sum = self.sums.entry(Arc::clone(&node)).or_default();
        sum.add(requests);
        *sum.others.entry(PODS.into()).or_default() += 1;
        self.pods_on_nodes
            .insert(Arc::clone(uid), PodOnNode { node: Arc::clone(&node), namespace, requests: requests.clone() });
        left.into_iter().chain([node]).collect()
    }

    /// Removes a pod, and returns the node where it was.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<str>> {
        let PodOnNode { node, mut requests, .. } = self.pods_on_nodes.remove(uid)?;
        if let Some(sum) = self.sums.get_mut(&node) {
            requests.others.insert(PODS.into(), 1);
            sum.subtract(&requests);
        }
        Some(node)
    }

    /// Whether the pod is on this node.
    pub(crate) fn is_on(&self, uid: &str, node: &str) -> bool {
        self.pods_on_nodes.get(uid).is_some_and(|pod| &*pod.node == node)
    }

    /// Whether the pod is on this node, and of this namespace.
    pub(crate) fn is_of(&self, uid: &str, namespace: &str, node: &str) -> bool {
        self.pods_on_nodes.get(uid).is_some_and(|pod| &*pod.node == node && &*pod.namespace == namespace)
    }

    /// The node of a pod.
    pub(crate) fn node_of(&self, uid: &str) -> Option<&Arc<str>> {
        self.pods_on_nodes.get(uid).map(|pod| &pod.node)
    }

    /// What a pod requests of its node.
    pub(crate) fn requests(&self, uid: &str) -> Option<&Resources> {
        self.pods_on_nodes.get(uid).map(|pod| &pod.requests)
    }

    /// UIDs of pods on nodes.
    pub(crate) fn pods_on_nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pods_on_nodes.keys()
    }

    /// What is left of these resources of a node.
    pub(crate) fn free(&self, node: &str, allocatable: &Resources) -> Resources {
        let mut free = allocatable.clone();
        self.sums.get(node).into_iter().for_each(|sum| free.subtract(sum));
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_requests_of_one_node_once() {
        let (mut requested, pod) = (Requested::default(), Arc::from("p"));
        let (of_cpu, of) = (Resources::of_cpu, || Arc::from("default"));
        let node = Resources { cpu_milli: 8000, others: [("memory".into(), 1 << 30), (PODS.into(), 2)].into() };
        let left = |requested: &Requested, name: &str| {
            let free = requested.free(name, &node);
            (free.cpu_milli, free.others["memory"] >> 20, free.others[PODS])
        };
        let wanted = Resources { cpu_milli: 3000, others: [("memory".into(), 1 << 29)].into() };
        assert_eq!(requested.add(&pod, of(), "n1", &wanted), [Arc::from("n1")]);
        assert!(requested.add(&pod, of(), "n1", &wanted).is_empty(), "told again");
        assert_eq!(left(&requested, "n1"), (5000, 512, 1));
        assert_eq!(left(&requested, "n2"), (8000, 1024, 2));
        let moved = requested.add(&pod, of(), "n2", &of_cpu(9000));
        assert_eq!(moved, [Arc::from("n1"), Arc::from("n2")], "bound elsewhere than was reserved");
        assert_eq!(left(&requested, "n1"), (8000, 1024, 2));
        assert_eq!(left(&requested, "n2"), (0, 1024, 1));
        assert!(requested.is_of("p", "default", "n2") && !requested.is_of("p", "other", "n2"));
        assert!(!requested.is_of("p", "default", "n1"));
        assert_eq!(requested.remove("p").as_deref(), Some("n2"));
        assert_eq!((requested.remove("p"), left(&requested, "n2")), (None, (8000, 1024, 2)));
        assert_eq!(node.lacks(&wanted), None);
        let gpus = Resources { others: [("nvidia.com/gpu".into(), 1)].into(), ..wanted };
        assert_eq!(node.lacks(&gpus), Some("nvidia.com/gpu"));
        assert_eq!(node.lacks(&of_cpu(8001)), Some("cpu"));
    }
}
