//! Nodes and pods in few words, for tests.

use std::collections::BTreeMap;
use std::time::Duration;

use divvy_api::gpunode::{CardStatus, GpuNode, GpuNodeSpec, GpuNodeStatus, ShareStatus};
use divvy_api::{ContainerKind, ContainerSpec, Cores, Links, Memory, Share};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::pod::PodView;

/// A node that takes pods, with so many empty cards of 40 GiB named `GPU-<node>-<number>`.
pub fn node(name: &str, cards: usize) -> GpuNode {
    let uuid = |number: usize| format!("GPU-{name}-{number}").parse().expect("a card's name");
    let card = |number: usize| CardStatus::healthy(uuid(number), "NVIDIA A100-SXM4-40GB", Memory::mib(40 << 10));
    let status = GpuNodeStatus {
        cards: (0..cards).map(card).collect(),
        links: Links::nvswitch(cards, 18).groups(),
        conditions: vec![condition("Ready", "True", "the kubelet asks this daemon for devices")],
        ..GpuNodeStatus::default()
    };
    GpuNode { status: Some(status), ..GpuNode::new(name, GpuNodeSpec::default()) }
}

/// Makes the first cards of a node MIG instances of the plain count, `MIG-<node>-<number>`, with so many GiB each.
pub fn cut(node: &mut GpuNode, gib: &[u64]) {
    for (card, gib) in status(node).cards.iter_mut().zip(gib) {
        let name = card.uuid.as_str().replacen("GPU", "MIG", 1);
        (card.uuid, card.memory) = (name.parse().expect("a card's name"), Memory::mib(gib << 10));
        (card.mig, card.plain) = (Some(format!("1g.{gib}gb")), true);
    }
}

/// What a node reports.
pub fn status(node: &mut GpuNode) -> &mut GpuNodeStatus {
    node.status.get_or_insert_default()
}

/// A condition as nodes report it.
pub fn condition(kind: &str, status: &str, message: &str) -> Condition {
    Condition {
        type_: kind.into(),
        status: status.into(),
        reason: "Test".into(),
        message: message.into(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

/// What the only container of a pod holds of a card.
pub fn share(node: &GpuNode, pod: &str, card: usize, gib: u64, cores: u32) -> ShareStatus {
    ShareStatus {
        pod_uid: pod.into(),
        namespace: "default".into(),
        pod: pod.into(),
        container: "main".into(),
        kind: ContainerKind::App,
        card: node.status.as_ref().expect("a status").cards[card].uuid.clone(),
        share: Share {
            memory: Memory::mib(gib << 10),
            cores: Cores::new(cores),
            exclusive: cores == 100,
            ..Share::default()
        },
        adopted: false,
    }
}

/// A pod with one container that asks for cards with so many GiB and cores each; its UID is its name.
pub fn pod(name: &str, cards: u32, gib: u64, cores: u32) -> PodView {
    PodView {
        uid: name.into(),
        namespace: "default".into(),
        name: name.into(),
        containers: vec![container("main", ContainerKind::App, cards, gib, cores)],
        ..PodView::default()
    }
}

/// A container that asks for cards with so many GiB and cores each.
pub fn container(name: &str, kind: ContainerKind, cards: u32, gib: u64, cores: u32) -> ContainerSpec {
    let limits: BTreeMap<String, String> = [
        ("nvidia.com/gpu".to_owned(), cards.to_string()),
        ("nvidia.com/gpumem".to_owned(), format!("{gib}Gi")),
        ("nvidia.com/gpucores".to_owned(), cores.to_string()),
    ]
    .into();
    let limits = limits.into_iter().filter(|(_, amount)| amount != "0").collect();
    ContainerSpec { name: name.into(), kind, index: 0, limits }
}

/// Longer than anything takes or waits for.
pub const AGES: Duration = Duration::from_secs(1 << 20);
