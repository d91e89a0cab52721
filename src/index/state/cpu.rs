//! The CPU of node_objects, and what pods have requested of it: a card is of no use where its pod finds no CPU.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

/// Amounts are thousandths of a core.
#[derive(Debug, Default)]
pub(crate) struct CpuRequests {
    /// What each machine has for pods.
    allocatable: HashMap<String, u32>,
    /// Pods on node_objects, by UID, also those that ask for no cards.
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
    /// A machine was added or changed; whether that changes what is free.
    pub(crate) fn machine(&mut self, name: &str, allocatable: Option<u32>) -> bool {
        let before = match allocatable {
            Some(milli) => self.allocatable.insert(name.to_owned(), milli),
            None => self.allocatable.remove(name),
        };
        before != allocatable
    }

    /// NodeObjects that say what they have.
    pub(crate) fn node_objects(&self) -> impl Iterator<Item = &String> {
        self.allocatable.keys()
    }

    /// A pod is on a machine, or about to be; node_objects where that changes what is free.
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

    /// A pod is gone; the machine where it was.
    pub(crate) fn go(&mut self, uid: &str) -> Option<Arc<str>> {
        let PodOnNode { node, cpu_milli } = self.pods_on_nodes.remove(uid)?;
        if let Some(requested) = self.requested.get_mut(&node) {
            *requested = requested.saturating_sub(cpu_milli.into());
        }
        Some(node)
    }

    /// Pods on node_objects.
    pub(crate) fn pods_on_nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pods_on_nodes.keys()
    }

    /// What pods may still request there; `None` if it isn't known what the machine has.
    pub(crate) fn free(&self, node: &str) -> Option<u32> {
        let allocatable = self.allocatable.get(node)?;
        let requested = self.requested.get(node).copied().unwrap_or(0);
        Some(u32::try_from(u64::from(*allocatable).saturating_sub(requested)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_takes_room_where_it_is_and_once() {
        let (mut cpu, pod) = (CpuRequests::default(), Arc::from("p"));
        assert!(cpu.machine("n1", Some(8000)) && cpu.machine("n2", Some(4000)));
        assert!(!cpu.machine("n1", Some(8000)), "a heartbeat");
        assert_eq!(cpu.come(&pod, "n1", 3000), [Arc::from("n1")]);
        assert!(cpu.come(&pod, "n1", 3000).is_empty(), "told again");
        assert_eq!((cpu.free("n1"), cpu.free("n2"), cpu.free("n3")), (Some(5000), Some(4000), None));
        let moved = cpu.come(&pod, "n2", 5000);
        assert_eq!(moved, [Arc::from("n1"), Arc::from("n2")], "bound elsewhere than was reserved");
        assert_eq!((cpu.free("n1"), cpu.free("n2")), (Some(8000), Some(0)));
        assert_eq!(cpu.go("p").as_deref(), Some("n2"));
        assert_eq!((cpu.go("p"), cpu.free("n2")), (None, Some(4000)));
    }
}
