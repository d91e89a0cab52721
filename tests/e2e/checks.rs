//! Whether containers, kubelet and daemon agree.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::ContainerKind;
use divvy_api::annotation::{self, Cards, Document as _};
use divvy_api::gpunode::{GpuNodeStatus, ShareStatus};
use divvy_node_core::pod::DeviceRecord;
use divvy_playground::checks::Tally;
use divvy_testkit::books::{self, Books};
use divvy_testkit::outside::{ContainerView, NodeView, PodView};
use serde_json::Value;

use crate::containers::{ContainerKey, Running};

/// Every problem that one look shows by itself: cards that are overfilled, containers that don't have what they asked
/// for.
pub fn node(node: &NodeView) -> Vec<String> {
    let mut tally = Tally::default();
    tally.check(node);
    tally.broken.iter().map(ToString::to_string).collect()
}

/// Where the daemon's books differ.
pub fn books(node: &NodeView, mut booked: Books) -> Vec<String> {
    if node.forgot {
        // What init containers held that have ended can't be seen any more.
        let is_known = |pod: &str, container: &str| {
            let pod = node.pods.iter().find(|view| view.name == pod);
            pod.is_some_and(|pod| pod.containers.iter().any(|view| view.name == container && has_trace(view)))
        };
        booked.retain(|(pod, container, _), _| is_known(pod, container));
    }
    books::difference(&books::expected(node), &booked).err().into_iter().collect()
}

fn has_trace(container: &ContainerView) -> bool {
    container.running || !container.slots.is_empty()
}

/// Where PodResources differs from the kubelet's checkpoint. It never lists ordinary init containers.
pub fn pod_resources(node: &NodeView, assigned: &[DeviceRecord]) -> Vec<String> {
    let listed = |pod: &PodView, container: &ContainerView| -> BTreeSet<String> {
        let of = |entry: &&DeviceRecord| {
            format!("{}/{}", entry.namespace, entry.pod) == pod.name && entry.container == container.name
        };
        assigned.iter().filter(of).flat_map(|entry| entry.devices.iter().cloned()).collect()
    };
    let all = node.pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
    let shown = all.filter(|(_, container)| container.kind != ContainerKind::Init);
    let differ = shown.filter(|(pod, container)| listed(pod, container) != container.slots);
    let problem = |(pod, container): (&PodView, &ContainerView)| {
        let found = listed(pod, container);
        format!("{} container {}: PodResources {found:?}, checkpoint {:?}", pod.name, container.name, container.slots)
    };
    differ.map(problem).collect()
}

/// Containers with a share but without a place to account for what they use.
pub fn regions(containers: &BTreeMap<ContainerKey, Running>) -> Vec<String> {
    let lacking = containers.iter().filter(|(_, running)| running.given.limits.is_some() && !running.has_region);
    lacking.map(|((uid, name), _)| format!("container {name} of pod {uid} has no region directory")).collect()
}

/// The books as `GpuNode` shows them.
pub fn reported(status: &GpuNodeStatus) -> Books {
    let share = |share: &ShareStatus| {
        let pod = format!("{}/{}", share.namespace, share.pod);
        ((pod, share.container.clone(), share.card.to_string()), share.share.memory.as_mib() << 20)
    };
    status.shares.iter().map(share).collect()
}

/// Where a pod's annotation `cards` names other cards than its running containers have.
pub fn annotations(node: &NodeView, pods: &BTreeMap<String, Value>) -> Vec<String> {
    let problem = |view: &PodView| {
        let text = pods.get(&view.uid)?["metadata"]["annotations"][Cards::KEY].as_str();
        let cards: Cards = match text.map(annotation::decode).transpose() {
            Ok(cards) => cards.unwrap_or_default(),
            Err(error) => return Some(format!("{}: {error}", view.name)),
        };
        view.containers.iter().filter(|container| container.running).find_map(|container| {
            let said = cards.containers.get(&container.name).into_iter().flatten().map(|card| card.uuid.as_str());
            let (said, had): (BTreeSet<&str>, _) = (said.collect(), container.cards());
            let problem = || format!("{} container {}: has {had:?}, annotated {said:?}", view.name, container.name);
            (said != had).then(problem)
        })
    };
    node.pods.iter().filter_map(problem).collect()
}
