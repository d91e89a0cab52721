//! Nodes and pods to be timed.

use divvy_api::annotation::{PolicyName, Preferences};
use divvy_api::pod::ContainerKind::{self, App, Init, Sidecar};
use divvy_api::{ContainerRequest, Cores, GpuRequest, Memory, MemoryAmount, Totals};
use divvy_placement::{Card, Held, Links, NoPlan, Plan, PodRequest, Policy, plan};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

pub(crate) const POLICIES: [PolicyName; 5] =
    [PolicyName::Binpack, PolicyName::Spread, PolicyName::Random, PolicyName::LeastFragmentation, PolicyName::Topology];

/// One question.
pub(crate) struct Scene {
    pub(crate) cards: Vec<Card>,
    pub(crate) links: Links,
    pub(crate) containers: Vec<ContainerRequest>,
    pub(crate) policy: Policy,
}

impl Scene {
    pub(crate) fn plan(&self) -> Result<Plan, NoPlan> {
        let preferences = Preferences::default();
        let pod = PodRequest { containers: &self.containers, allocated: &[], shares: &[], preferences: &preferences };
        plan(&self.cards, &self.links, &pod, &self.policy)
    }
}

/// A pod of four containers on sixteen partly filled cards, no two alike, on PCIe switches.
pub(crate) fn everyday(name: PolicyName, seed: u64) -> Scene {
    let mut rng = StdRng::seed_from_u64(seed);
    let cards = (0..16).map(|number| partly_filled(number, &mut rng)).collect();
    let containers = vec![
        container(Init, 1, rng.random_range(2..12), 10),
        container(Sidecar, 2, rng.random_range(1..4), 0),
        container(App, 2, rng.random_range(4..24), rng.random_range(5..40)),
        container(App, 1, rng.random_range(4..24), rng.random_range(5..40)),
    ];
    Scene { cards, links: Links::pcie(16), containers, policy: Policy { name, seed } }
}

/// Containers that each fit somewhere, no two alike, and don't fit together: a card takes one of them.
pub(crate) fn hopeless(name: PolicyName, containers: u64, cards_each: u32) -> Scene {
    let mut rng = StdRng::seed_from_u64(1);
    let cards = (0..16).map(|number| partly_filled(number, &mut rng)).enumerate();
    let cards =
        cards.map(|(number, card)| Card { memory_capacity: gib(80 + number as u64), held: Held::default(), ..card });
    let containers = (0..containers).map(|number| container(App, cards_each, 50 + number, 1)).collect();
    Scene { cards: cards.collect(), links: Links::pcie(16), containers, policy: Policy { name, seed: 1 } }
}

/// Half of the node at once, where every set is worth something else.
pub(crate) fn half_the_node(name: PolicyName) -> Scene {
    let mut rng = StdRng::seed_from_u64(2);
    let cards = (0..16).map(|number| partly_filled(number, &mut rng)).collect();
    let containers =
        vec![container(Sidecar, 8, 1, 1), container(App, 8, 2, 1), container(App, 8, 1, 1), container(App, 8, 1, 2)];
    let links = Links::new(16, |_, _| divvy_placement::Link::NvLink(rng.random_range(0..6)));
    Scene { cards, links, containers, policy: Policy { name, seed: 2 } }
}

/// Eight cards alone on a node of sixteen empty ones, linked as no machine is.
pub(crate) fn eight_whole_cards(name: PolicyName) -> Scene {
    let half = half_the_node(name);
    let cards = half.cards.into_iter().map(|card| Card { held: Held::default(), free_slots: 32, ..card }).collect();
    let whole = ContainerRequest { request: Some(GpuRequest::whole(8)), ..container(App, 8, 1, 0) };
    Scene { cards, containers: vec![whole], ..half }
}

fn partly_filled(number: usize, rng: &mut StdRng) -> Card {
    let empty = rng.random_range(0..4) == 0;
    let cores = if empty { 0 } else { rng.random_range(0..80) };
    let memory = if empty { 0 } else { rng.random_range(1..70 << 10) };
    Card {
        id: format!("GPU-5f3a9c10-0000-4000-8000-{number:012}").parse().expect("a card's name"),
        model: "NVIDIA A100-SXM4-80GB".into(),
        profile: None,
        memory: gib(80),
        memory_capacity: gib(80),
        cores_capacity: Cores::FULL,
        healthy: true,
        numa: Some(u32::from(number >= 8)),
        free_slots: 32 - u32::from(!empty),
        held: Held {
            memory: Memory::mib(memory),
            cores: Cores::new(cores),
            host: Memory::ZERO,
            exclusive: false,
            pods: u32::from(!empty),
        },
        undivided: false,
        tier: divvy_api::Tier::Shim,
        oversubscription: None,
        busy: 0,
    }
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
