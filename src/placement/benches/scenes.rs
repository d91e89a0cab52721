//! Nodes and pods to be timed.

use std::sync::Arc;

use divvy_api::annotation::{PolicyName, Preferences};
use divvy_api::pod::ContainerKind::{self, App, Init, Sidecar};
use divvy_api::{
    Card, ContainerRequest, Cores, GpuRequest, Link, Links, Memory, MemoryAmount, NodeCards, Tier, Totals,
};
use divvy_placement::{Held, NoPlan, NodeState, Plan, PodRequest, Policy, plan};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

pub(crate) const POLICIES: [PolicyName; 5] =
    [PolicyName::Binpack, PolicyName::Spread, PolicyName::Random, PolicyName::LeastFragmentation, PolicyName::Topology];

/// One question.
pub(crate) struct Scene {
    pub(crate) state: NodeState,
    pub(crate) containers: Vec<ContainerRequest>,
    pub(crate) policy: Policy,
}

impl Scene {
    pub(crate) fn plan(&self) -> Result<Plan, NoPlan> {
        let preferences = Preferences::default();
        let pod = PodRequest { containers: &self.containers, allocated: &[], shares: &[], preferences: &preferences };
        plan(&self.state, &pod, &self.policy)
    }
}

/// A pod of four containers on sixteen partly filled cards, no two alike, on PCIe switches.
pub(crate) fn everyday(name: PolicyName, seed: u64) -> Scene {
    let mut rng = StdRng::seed_from_u64(seed);
    let held = (0..16).map(|_| partly_filled(&mut rng)).collect();
    let containers = vec![
        container(Init, 1, rng.random_range(2..12), 10),
        container(Sidecar, 2, rng.random_range(1..4), 0),
        container(App, 2, rng.random_range(4..24), rng.random_range(5..40)),
        container(App, 1, rng.random_range(4..24), rng.random_range(5..40)),
    ];
    Scene { state: NodeState { held, ..node(Links::pcie(16)) }, containers, policy: Policy { name, seed } }
}

/// Containers that each fit somewhere, no two alike, and don't fit together: a card takes one of them.
pub(crate) fn hopeless(name: PolicyName, containers: u64, cards_each: u32) -> Scene {
    let mut state = node(Links::pcie(16));
    for (number, card) in (0..).zip(&mut Arc::make_mut(&mut state.node).cards) {
        card.memory = gib(80 + number);
    }
    let containers = (0..containers).map(|number| container(App, cards_each, 50 + number, 1)).collect();
    Scene { state, containers, policy: Policy { name, seed: 1 } }
}

/// Half of the node at once, where every set is worth something else.
pub(crate) fn half_the_node(name: PolicyName) -> Scene {
    let mut rng = StdRng::seed_from_u64(2);
    let held = (0..16).map(|_| partly_filled(&mut rng)).collect();
    let containers =
        vec![container(Sidecar, 8, 1, 1), container(App, 8, 2, 1), container(App, 8, 1, 1), container(App, 8, 1, 2)];
    let links = Links::new(16, |_, _| Link::NvLink(rng.random_range(0..6)));
    Scene { state: NodeState { held, ..node(links) }, containers, policy: Policy { name, seed: 2 } }
}

/// Eight cards alone on a node of sixteen empty ones, linked as no machine is.
pub(crate) fn eight_whole_cards(name: PolicyName) -> Scene {
    let half = half_the_node(name);
    let whole = ContainerRequest { request: Some(GpuRequest::whole(8)), ..container(App, 8, 1, 0) };
    Scene { state: NodeState::empty(half.state.node), containers: vec![whole], policy: half.policy }
}

/// A node of sixteen cards with 80 GiB each, eight on each of two NUMA nodes.
fn node(links: Links) -> NodeState {
    let card = |number: u32| Card {
        model: "NVIDIA A100-SXM4-80GB".into(),
        numa: Some(u32::from(number >= 8)),
        slots: 32,
        tier: Tier::Shim,
        ..Card::healthy(format!("GPU-5f3a9c10-0000-4000-8000-{number:012}").parse().expect("a card's name"), gib(80))
    };
    let cards = (0..16).map(card).collect();
    NodeState::empty(Arc::new(NodeCards { cards, links: Arc::new(links), ..NodeCards::default() }))
}

/// What a pod holds of a card; of one in four nobody holds anything.
fn partly_filled(rng: &mut StdRng) -> Held {
    if rng.random_range(0..4) == 0 {
        return Held::default();
    }
    let cores = Cores::new(rng.random_range(0..80));
    let memory = Memory::mib(rng.random_range(1..70 << 10));
    Held { memory, cores, pods: 1, slots: 1, ..Held::default() }
}

fn container(kind: ContainerKind, cards: u32, memory: u64, cores: u32) -> ContainerRequest {
    ContainerRequest {
        name: "main".to_owned(),
        kind,
        request: Some(request(cards, memory, cores)),
        profile: None,
        counted: Totals::default(),
    }
}

fn request(cards: u32, memory: u64, cores: u32) -> GpuRequest {
    GpuRequest { cards, memory: MemoryAmount::Absolute(gib(memory)), cores: Cores::new(cores) }
}

fn gib(gib: u64) -> Memory {
    Memory::mib(gib << 10)
}
