//! CPU requests of the pods on nodes: a GPU is of no use where its pod finds no CPU.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

/// Requested CPU by node. Amounts are thousandths of a core.
#[derive(Debug, Default)]
pub(crate) struct CpuRequests {
    /// Pods on nodes, by UID, also those that ask for no GPUs.
    pods_on_nodes: HashMap<Arc<str>, PodOnNode, RandomState>,
    requested: HashMap<Arc<str>, u64, RandomState>,
}

#[derive(Debug)]
struct PodOnNode {
    node: Arc<str>,
    cpu_milli: u32,
}

// === impl CpuRequests ===

impl CpuRequests {
    /// Counts a pod's request on a node, and returns the nodes where that changes what is free.
    pub(crate) fn come(&mut self, uid: &Arc<str>, node: &str, cpu_milli: u32) -> Vec<Arc<str>> {
        if self.pods_on_nodes.get(uid).is_some_and(|known| &*known.node == node && known.cpu_milli == cpu_milli) {
            return Vec::new();
        }
        let left = self.go(uid);
        let node = self.requested.get_key_value(node).map_or_else(|| node.into(), |(node, _)| Arc::clone(node));
        *self.requested.entry(Arc::clone(&node)).or_default() += u64::from(cpu_milli);
        self.pods_on_nodes.insert(Arc::clone(uid), PodOnNode { node: Arc::clone(&node), cpu_milli });
        left.into_iter().chain([node]).collect()
    }

    /// Removes a pod, and returns the node where it was.
    pub(crate) fn go(&mut self, uid: &str) -> Option<Arc<str>> {
        let PodOnNode { node, cpu_milli } = self.pods_on_nodes.remove(uid)?;
        if let Some(requested) = self.requested.get_mut(&node) {
            *requested = requested.saturating_sub(cpu_milli.into());
        }
        Some(node)
    }

    /// Whether the pod is on this node.
    pub(crate) fn is_on(&self, uid: &str, node: &str) -> bool {
        self.pods_on_nodes.get(uid).is_some_and(|pod| &*pod.node == node)
    }

    /// The node of a pod.
    pub(crate) fn node_of(&self, uid: &str) -> Option<&Arc<str>> {
        self.pods_on_nodes.get(uid).map(|pod| &pod.node)
    }

    /// UIDs of pods on nodes.
    pub(crate) fn pods_on_nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pods_on_nodes.keys()
    }

    /// CPU that the pods on a node request.
    pub(crate) fn requested(&self, node: &str) -> u64 {
        self.requested.get(node).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_requests_cpu_on_one_node_once() {
        let (mut cpu, pod) = (CpuRequests::default(), Arc::from("p"));
        assert_eq!(cpu.come(&pod, "n1", 3000), [Arc::from("n1")]);
        assert!(cpu.come(&pod, "n1", 3000).is_empty(), "told again");
        assert_eq!((cpu.requested("n1"), cpu.requested("n2")), (3000, 0));
        let moved = cpu.come(&pod, "n2", 5000);
        assert_eq!(moved, [Arc::from("n1"), Arc::from("n2")], "bound elsewhere than was reserved");
        assert_eq!((cpu.requested("n1"), cpu.requested("n2")), (0, 5000));
        assert_eq!(cpu.go("p").as_deref(), Some("n2"));
        assert_eq!((cpu.go("p"), cpu.requested("n2")), (None, 0));
    }
}
