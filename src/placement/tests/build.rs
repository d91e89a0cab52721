//! Nodes, containers and pods in few words.

use std::sync::Arc;

use divvy_api::annotation::Preferences;
use divvy_api::gpunode::Oversubscription;
use divvy_api::pod::ContainerKind;
use divvy_api::{
    Card, ContainerRequest, Cores, GpuRequest, Links, Memory, MemoryAmount, MigInstance, NodeCards, Tier, Totals,
};

use crate::{Held, NodeState, PodRequest};

/// A card with this much memory.
pub(crate) fn card(number: usize, mib: u64) -> Card {
    let id = format!("GPU-{number}").parse().expect("a card's name");
    Card { model: "NVIDIA A100-SXM4-80GB".into(), slots: 32, tier: Tier::Shim, ..Card::healthy(id, Memory::mib(mib)) }
}

/// Cards with 80 GiB each.
pub(crate) fn cards(count: usize) -> Vec<Card> {
    (0..count).map(|number| card(number, 80 << 10)).collect()
}

/// MIG instances with so many GiB each, requested as GPUs are.
pub(crate) fn instances(gib: &[u64]) -> Vec<Card> {
    let instance = |(number, gib): (usize, &u64)| Card {
        id: format!("MIG-{number}").parse().expect("a card's name"),
        mig: Some(MigInstance { profile: format!("1g.{gib}gb").parse().expect("a profile"), by_profile: false }),
        ..card(number, gib << 10)
    };
    gib.iter().enumerate().map(instance).collect()
}

/// A node with these cards, of which nobody holds anything.
pub(crate) fn node(cards: Vec<Card>) -> NodeState {
    NodeState::empty(Arc::new(NodeCards { cards, ..NodeCards::default() }))
}

/// The node's cards and what is the node's, to be changed.
pub(crate) fn change(state: &mut NodeState) -> &mut NodeCards {
    Arc::make_mut(&mut state.node)
}

/// The node, whose cards are linked like this.
pub(crate) fn linked(mut state: NodeState, links: Links) -> NodeState {
    change(&mut state).links = Arc::new(links);
    state
}

/// The node, if it allocates no parts of its cards.
pub(crate) fn undivided(mut state: NodeState) -> NodeState {
    change(&mut state).undivided = true;
    state
}

/// The node, if it oversubscribes its cards' memory by 2, with so much host memory.
pub(crate) fn twice(mut state: NodeState, host_gib: u64) -> NodeState {
    let host_memory = Memory::mib(host_gib << 10);
    change(&mut state).oversubscription = Some(Oversubscription { memory_scale: 200, host_memory });
    state
}

/// What the author of a pod says that the hardware must hold to its shares.
pub(crate) fn by_hardware() -> Preferences {
    Preferences { tier: Some(Tier::Mig), ..Preferences::default() }
}

/// What one other pod holds.
pub(crate) fn held(mib: u64, cores: u32) -> Held {
    let (memory, cores) = (Memory::mib(mib), Cores::new(cores));
    Held { memory, cores, exclusive: cores == Cores::FULL, pods: 1, ..Held::default() }
}

/// What one other pod holds that asked for oversubscription.
pub(crate) fn held_with_host(mib: u64, host: u64) -> Held {
    Held { host: Memory::mib(host), ..held(mib, 0) }
}

/// What the author of a pod says that asks for oversubscription.
pub(crate) fn oversubscribe() -> Preferences {
    Preferences { oversubscribe: true, ..Preferences::default() }
}

pub(crate) fn request(cards: u32, mib: u64, cores: u32) -> GpuRequest {
    GpuRequest { cards, memory: MemoryAmount::Absolute(Memory::mib(mib)), cores: Cores::new(cores) }
}

pub(crate) fn container(kind: ContainerKind, cards: u32, mib: u64, cores: u32) -> ContainerRequest {
    let (name, request, counted) = ("main".to_owned(), Some(request(cards, mib, cores)), Totals::default());
    ContainerRequest { name, kind, profile: None, request, counted }
}

pub(crate) fn no_wishes() -> &'static Preferences {
    static NONE: std::sync::LazyLock<Preferences> = std::sync::LazyLock::new(Preferences::default);
    &NONE
}

pub(crate) fn pod_request<'a>(
    containers: &'a [ContainerRequest],
    allocated: &'a [Vec<usize>],
    preferences: &'a Preferences,
) -> PodRequest<'a> {
    PodRequest { containers, allocated, shares: &[], preferences }
}
