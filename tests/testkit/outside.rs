//! A node as everybody but its daemon sees it: what the kubelet holds, and what containers were really given.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use divvy_api::pod::peak;
use divvy_api::request::Sharing;
use divvy_api::{
    Card, CardId, ContainerKind, ContainerRequest, GpuRequest, Health, Links, Memory, NodeCards, Share, Tier,
};
use divvy_node::container::limits::{self, Limits};
use divvy_node::container::{LIMITS_FILE, LIMITS_MOUNT};
use divvy_placement::{Held, NodeState};
use divvy_proto::deviceplugin::ContainerAllocateResponse;

use crate::pods::GPU;
use fake_kubelet::{KubeletView, Phase};

/// Slots that a daemon registers for each card.
pub const SLOTS_PER_CARD: u32 = 32;

/// A node at one instant.
#[derive(Clone, Debug, Default)]
pub struct NodeView {
    /// Name of the node.
    pub name: String,
    /// In the order of their indices.
    pub cards: Vec<CardView>,
    /// Pods that are neither rejected nor over.
    pub pods: Vec<PodView>,
    /// Every ID that the plugin has ever listed.
    pub once_listed: BTreeSet<String>,
    /// Whether the kubelet has ever lost its checkpoint.
    pub forgot: bool,
    /// IDs in its last list; `None` until the first one after the kubelet's start.
    pub listed: Option<BTreeSet<String>>,
}

/// A card, as the machine has it.
#[derive(Clone, Debug)]
pub struct CardView {
    /// UUID of the card.
    pub id: CardId,
    /// Model of the card.
    pub model: String,
    /// All of its memory.
    pub memory: Memory,
    /// NUMA node of the card.
    pub numa: Option<u32>,
    /// Whether the kubelet may give slots of it.
    pub healthy: bool,
}

/// A live pod.
#[derive(Clone, Debug)]
pub struct PodView {
    /// `metadata.uid`.
    pub uid: String,
    /// `namespace/name`.
    pub name: String,
    /// How its requests become shares of cards.
    pub sharing: Sharing,
    /// In admission order.
    pub containers: Vec<ContainerView>,
}

/// A container of a live pod.
#[derive(Clone, Debug)]
pub struct ContainerView {
    /// Name of the container.
    pub name: String,
    /// What it is to its pod.
    pub kind: ContainerKind,
    /// What it asked for.
    pub request: Option<GpuRequest>,
    /// Whether its process exists.
    pub running: bool,
    /// IDs that the kubelet has on record for it; it may have lost them.
    pub slots: BTreeSet<String>,
    /// What its last start gave it.
    pub given: Option<Given>,
}

/// What stands in a container's environment, mounts and CDI devices.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Cards, by where they are named.
    pub named: BTreeMap<&'static str, BTreeSet<String>>,
    /// What its limits file says; or why there is none.
    pub limits: Option<Result<Limits, String>>,
}

/// What every container of a pod asks for, by the pod's UID.
pub type Requests = HashMap<String, Vec<ContainerRequest>>;

// === impl NodeView ===

impl NodeView {
    /// Takes over what the kubelet has and what containers were given.
    pub fn look(&mut self, kubelet: &KubeletView, requests: &Requests) {
        let live = kubelet.pods.iter().filter(|(_, pod)| is_live(pod));
        self.pods = live.map(|(uid, pod)| PodView::of(uid, pod, requests.get(uid))).collect();
        self.listed = kubelet.listed.get(GPU).filter(|listed| !listed.is_empty()).cloned();
        self.once_listed.extend(self.listed.iter().flatten().cloned());
        let healthy: BTreeSet<&str> =
            kubelet.healthy.get(GPU).into_iter().flatten().filter_map(|id| Some(id.split_once("::")?.0)).collect();
        for card in &mut self.cards {
            card.healthy = healthy.contains(card.id.as_str());
        }
    }

    /// What each pod holds of a card at its peak.
    pub fn holders<'a>(&'a self, card: &'a CardView) -> impl Iterator<Item = (&'a PodView, Share)> {
        self.pods.iter().map(move |pod| (pod, pod.share_of(card))).filter(|(_, share)| *share != Share::default())
    }

    /// What pods hold of a card together.
    pub fn held(&self, card: &CardView) -> Held {
        self.holders(card).fold(Held::default(), |held, (_, share)| held.with(&share))
    }

    /// The node as placement wants it, with these links between its cards.
    pub fn to_placement(&self, links: &Links) -> NodeState {
        let slots: BTreeSet<&String> = self.containers().flat_map(|container| &container.slots).collect();
        let taken = |card: &CardView| slots.iter().filter(|slot| is_slot_of(slot, &card.id)).count();
        let held = |card: &CardView| Held { slots: u32::try_from(taken(card)).unwrap_or(u32::MAX), ..self.held(card) };
        let node = NodeCards {
            cards: self.cards.iter().map(CardView::to_placement).collect(),
            links: Arc::new(links.clone()),
            ..NodeCards::default()
        };
        NodeState { held: self.cards.iter().map(held).collect(), ..NodeState::empty(Arc::new(node)) }
    }

    fn containers(&self) -> impl Iterator<Item = &ContainerView> {
        self.pods.iter().flat_map(|pod| &pod.containers)
    }
}

// === impl CardView ===

impl CardView {
    fn to_placement(&self) -> Card {
        Card {
            model: self.model.as_str().into(),
            numa: self.numa,
            slots: SLOTS_PER_CARD,
            tier: Tier::Shim,
            health: if self.healthy {
                Health::Healthy
            } else {
                Health::unhealthy("the kubelet has no healthy device of it")
            },
            ..Card::healthy(self.id.clone(), self.memory)
        }
    }
}

fn is_slot_of(slot: &str, card: &CardId) -> bool {
    slot.split_once("::").is_some_and(|(id, _)| id == card.as_str())
}

/// A share ends when its pod is gone, or Failed or Succeeded with nothing running.
fn is_live(pod: &fake_kubelet::PodView) -> bool {
    let over = matches!(pod.phase, Phase::Failed | Phase::Succeeded);
    pod.listed && (!over || pod.containers.iter().any(|container| container.state.is_running()))
}

// === impl PodView ===

impl PodView {
    fn of(uid: &str, pod: &fake_kubelet::PodView, requests: Option<&Vec<ContainerRequest>>) -> Self {
        let request = |name: &str| requests?.iter().find(|container| container.name == name)?.request;
        let containers = pod.containers.iter().map(|container| ContainerView {
            name: container.name.clone(),
            kind: container.kind,
            request: request(&container.name),
            running: container.state.is_running(),
            slots: container.devices.get(GPU).cloned().unwrap_or_default(),
            given: container.given.as_ref().map(Given::read),
        });
        Self {
            uid: uid.to_owned(),
            name: format!("{}/{}", pod.namespace, pod.name),
            sharing: Sharing::Part,
            containers: containers.collect(),
        }
    }

    /// What it holds of a card at its peak.
    pub fn share_of(&self, card: &CardView) -> Share {
        let share = |container: &ContainerView| {
            let holds = container.cards().contains(card.id.as_str());
            let request = container.request.filter(|_| holds);
            request.map(|request| request.share_of(card.memory, self.sharing)).unwrap_or_default()
        };
        peak(self.containers.iter().map(|container| (container.kind, share(container))))
    }
}

// === impl ContainerView ===

impl ContainerView {
    /// Cards that it holds: of a process those that it was started with, else those that the kubelet set aside.
    pub fn cards(&self) -> BTreeSet<&str> {
        let given = self.given.iter().flat_map(|given| given.named.values().flatten()).map(String::as_str);
        if self.running || self.slots.is_empty() { given.collect() } else { self.slot_cards() }
    }

    /// Cards behind its slots.
    pub fn slot_cards(&self) -> BTreeSet<&str> {
        self.slots.iter().map(|slot| slot.split_once("::").map_or(slot.as_str(), |(card, _)| card)).collect()
    }
}

// === impl Given ===

impl Given {
    /// Reads an answer as container runtimes do, and the limits file in its mount.
    pub fn read(answer: &ContainerAllocateResponse) -> Self {
        let mut named: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
        let mut name = |place, cards: Vec<String>| {
            if !cards.is_empty() {
                named.entry(place).or_default().extend(cards);
            }
        };
        let cards = |list: &str| list.split(',').filter(|id| id.parse::<CardId>().is_ok()).map(str::to_owned).collect();
        let devices =
            |list: &str| list.split(',').filter_map(|name| Some(name.split_once('=')?.1.to_owned())).collect();
        name("environment", answer.envs.get("NVIDIA_VISIBLE_DEVICES").map(|list| cards(list)).unwrap_or_default());
        for mount in &answer.mounts {
            if let Some(card) = mount.container_path.strip_prefix("/var/run/nvidia-container-devices/") {
                name("mounts", vec![card.to_owned()]);
            }
        }
        for (_, list) in answer.annotations.iter().filter(|(key, _)| key.starts_with("cdi.k8s.io/")) {
            name("CDI annotation", devices(list));
        }
        answer.cdi_devices.iter().for_each(|device| name("CDI devices", devices(&device.name)));
        let mount = answer.mounts.iter().find(|mount| mount.container_path == LIMITS_MOUNT);
        Self { named, limits: mount.map(|mount| read_limits(Path::new(&mount.host_path))) }
    }

    /// Whether no plugin was asked.
    pub fn is_nothing(&self) -> bool {
        self.named.is_empty() && self.limits.is_none()
    }
}

fn read_limits(directory: &Path) -> Result<Limits, String> {
    let file = directory.join(LIMITS_FILE);
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    limits::read(&text).map_err(|error| format!("{shown}: {error}"))
}
