//! What the cluster is told of a node: its `GpuNode`, and the `cards` annotation of its pods.

use std::collections::BTreeMap;

use divvy_api::Share;
use divvy_api::annotation::{self, Cards, Document as _};
use divvy_api::gpunode::GpuNodeStatus;
use serde::Deserialize as _;

use divvy_testkit::outside::{NodeView, PodView};
use fake_apiserver::{ApiServer, View};

/// The share of each card, by pod UID and container.
pub type Shares = BTreeMap<(String, String), BTreeMap<String, Share>>;

/// What is told of one node.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Revision of the ledger that the `GpuNode` shows; 0 before there is one.
    pub revision: u64,
    /// `GpuNode.status.shares`.
    pub gpu_node: Shares,
    /// Annotations of the pods that live on the node.
    pub annotations: Shares,
}

// === impl Published ===

impl Published {
    /// What the API server shows now.
    pub fn read(server: &ApiServer, node: &NodeView) -> Result<Self, String> {
        server.read(|view| {
            let (revision, gpu_node) = gpu_node(view, &node.name)?;
            let mut annotations = Shares::new();
            for pod in &node.pods {
                annotations.extend(annotation(view, pod)?);
            }
            Ok(Self { revision, gpu_node, annotations })
        })
    }

    /// Nothing that is told contradicts what running containers have; something may be missing still.
    pub fn contradicts(&self, node: &NodeView) -> Result<(), String> {
        // A kubelet without its checkpoint asks again for what doesn't run, and may be told otherwise.
        let running = |pod: &PodView, name: &str| pod.containers.iter().any(|own| own.name == name && own.running);
        let told = node.pods.iter().flat_map(|pod| held(node, pod).map(move |(name, cards)| (pod, name, cards)));
        for (pod, name, cards) in told.filter(|(pod, name, _)| running(pod, name)) {
            let key = (pod.uid.clone(), name.to_owned());
            for (place, shares) in self.places() {
                if let Some(found) = shares.get(&key).filter(|found| **found != cards) {
                    return Err(format!("{} container {name}: holds {cards:?}, {place} says {found:?}", pod.name));
                }
            }
        }
        Ok(())
    }

    /// Whether this is what all containers hold, as of the ledger's `revision` or later.
    pub fn agrees(&self, node: &NodeView, revision: u64) -> Result<(), String> {
        if self.revision < revision {
            return Err(format!("GpuNode shows revision {} of the ledger, which is at {revision}", self.revision));
        }
        let all = node
            .pods
            .iter()
            .flat_map(|pod| held(node, pod).map(|(name, cards)| ((pod.uid.clone(), name.to_owned()), cards)));
        let expected: Shares = all.collect();
        for (place, shares) in self.places() {
            let mut keys = expected.keys().chain(shares.keys());
            if let Some(key @ (uid, name)) = keys.find(|key| expected.get(*key) != shares.get(*key)) {
                let (held, told) = (expected.get(key), shares.get(key));
                return Err(format!("pod {uid} container {name}: holds {held:?}, {place} says {told:?}"));
            }
        }
        Ok(())
    }

    fn places(&self) -> [(&'static str, &Shares); 2] {
        [("GpuNode", &self.gpu_node), ("annotation", &self.annotations)]
    }
}

fn gpu_node(view: &View<'_>, name: &str) -> Result<(u64, Shares), String> {
    let Some(status) = view.kept("GpuNode", "", name).and_then(|object| object.get("status")) else {
        return Ok(Default::default());
    };
    let status = GpuNodeStatus::deserialize(status).map_err(|error| format!("GpuNode {name}: {error}"))?;
    let mut shares = Shares::new();
    for share in status.shares {
        shares.entry((share.pod_uid, share.container)).or_default().insert(share.card.to_string(), share.share);
    }
    Ok((status.ledger_revision, shares))
}

fn annotation(view: &View<'_>, pod: &PodView) -> Result<Shares, String> {
    let object = pod.name.split_once('/').and_then(|(namespace, name)| view.kept("Pod", namespace, name));
    let own = object.filter(|object| object["metadata"]["uid"] == *pod.uid);
    let text = own.and_then(|object| object["metadata"]["annotations"][Cards::KEY].as_str());
    let Some(text) = text else { return Ok(Shares::new()) };
    let cards: Cards = annotation::decode(text).map_err(|error| format!("{}: {}: {error}", pod.name, Cards::KEY))?;
    let containers = cards.containers.into_iter();
    Ok(containers
        .map(|(name, cards)| {
            let cards = cards.into_iter().map(|card| (card.uuid.to_string(), card.share));
            ((pod.uid.clone(), name), cards.collect())
        })
        .collect())
}

/// What the containers of a pod hold, ended init containers included.
fn held<'a>(node: &'a NodeView, pod: &'a PodView) -> impl Iterator<Item = (&'a str, BTreeMap<String, Share>)> {
    pod.containers.iter().filter_map(|container| {
        let (request, held) = (container.request?, container.cards());
        let cards = node.cards.iter().filter(|card| held.contains(card.id.as_str()));
        let cards: BTreeMap<_, _> = cards.map(|card| (card.id.to_string(), request.share_on(card.memory))).collect();
        (!cards.is_empty()).then_some((container.name.as_str(), cards))
    })
}

#[cfg(test)]
mod tests {
    use divvy_api::request::Sharing;
    use divvy_api::{ContainerKind, Cores, GpuRequest, Memory, MemoryAmount};

    use super::*;
    use divvy_testkit::outside::{CardView, ContainerView};

    const CARDS: [&str; 2] = ["GPU-a", "GPU-b"];

    /// A container that runs with a part of the first card.
    fn node() -> NodeView {
        let request = GpuRequest { cards: 1, memory: MemoryAmount::Absolute(Memory::mib(100)), cores: Cores::new(10) };
        let container = ContainerView {
            name: "main".to_owned(),
            kind: ContainerKind::App,
            request: Some(request),
            running: true,
            slots: ["GPU-a::0".to_owned()].into(),
            given: Some(divvy_testkit::outside::Given {
                named: [("environment", ["GPU-a".to_owned()].into())].into(),
                limits: None,
            }),
        };
        let card = |id: &str| CardView {
            id: id.parse().expect("a UUID"),
            model: "T4".to_owned(),
            memory: Memory::mib(1000),
            numa: None,
            healthy: true,
        };
        let pod = PodView {
            uid: "u".to_owned(),
            name: "default/p".to_owned(),
            sharing: Sharing::Part,
            containers: vec![container],
        };
        NodeView { name: "n".to_owned(), cards: CARDS.map(card).into(), pods: vec![pod], ..NodeView::default() }
    }

    fn shares(card: &str, mib: u64) -> Shares {
        let share = Share { memory: Memory::mib(mib), cores: Cores::new(10), ..Share::default() };
        [(("u".to_owned(), "main".to_owned()), [(card.to_owned(), share)].into())].into()
    }

    fn published(gpu_node: Shares, annotations: Shares) -> Published {
        Published { revision: 7, gpu_node, annotations }
    }

    #[test]
    fn what_is_told_must_be_what_containers_hold() {
        let node = node();
        let told = published(shares("GPU-a", 100), shares("GPU-a", 100));
        assert_eq!((told.contradicts(&node), told.agrees(&node, 7)), (Ok(()), Ok(())));
        assert!(told.agrees(&node, 8).expect_err("too old").contains("shows revision 7 of the ledger, which is at 8"));
        for wrong in [shares("GPU-b", 100), shares("GPU-a", 200)] {
            let gpu_node = published(wrong.clone(), shares("GPU-a", 100));
            let annotation = published(shares("GPU-a", 100), wrong);
            for (place, told) in [("GpuNode", gpu_node), ("annotation", annotation)] {
                assert!(told.contradicts(&node).expect_err("differs").contains(place), "{place}");
                assert!(told.agrees(&node, 7).expect_err("differs").contains(place), "{place}");
            }
        }
        let missing = published(Shares::new(), shares("GPU-a", 100));
        assert_eq!(missing.contradicts(&node), Ok(()), "it may come yet");
        assert!(missing.agrees(&node, 7).is_err());
    }
}
