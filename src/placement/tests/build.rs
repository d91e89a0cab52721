//! Cards, containers and pods in few words.

use divvy_api::annotation::Preferences;
use divvy_api::gpunode::Oversubscription;
use divvy_api::pod::ContainerKind;
use divvy_api::{ContainerRequest, Cores, GpuRequest, Memory, MemoryAmount, Tier, Totals};

use crate::{Card, Held, PodRequest};

/// An empty card with this much memory.
pub(crate) fn card(number: usize, mib: u64) -> Card {
    Card {
        id: format!("GPU-{number}").parse().expect("a card's name"),
        model: "NVIDIA A100-SXM4-80GB".into(),
        profile: None,
        memory: Memory::mib(mib),
        memory_capacity: Memory::mib(mib),
        cores_capacity: Cores::FULL,
        healthy: true,
        numa: None,
        free_slots: 32,
        held: Held::default(),
        undivided: false,
        tier: Tier::Shim,
        oversubscription: None,
        busy: 0,
    }
}

/// Empty cards with 80 GiB each.
pub(crate) fn cards(count: usize) -> Vec<Card> {
    (0..count).map(|number| card(number, 80 << 10)).collect()
}

/// Empty MIG instances with so many GiB each.
pub(crate) fn instances(gib: &[u64]) -> Vec<Card> {
    let instance = |(number, gib): (usize, &u64)| Card {
        id: format!("MIG-{number}").parse().expect("a card's name"),
        ..card(number, gib << 10)
    };
    gib.iter().enumerate().map(instance).collect()
}

/// What the author of a pod says that the hardware must hold to its shares.
pub(crate) fn by_hardware() -> Preferences {
    Preferences { tier: Some(Tier::Mig), ..Preferences::default() }
}

/// What one other pod holds.
pub(crate) fn held(mib: u64, cores: u32) -> Held {
    let (memory, cores) = (Memory::mib(mib), Cores::new(cores));
    Held { memory, host: Memory::ZERO, cores, exclusive: cores == Cores::FULL, pods: 1 }
}

/// What one other pod holds that asked for oversubscription.
pub(crate) fn held_with_host(mib: u64, host: u64) -> Held {
    Held { host: Memory::mib(host), ..held(mib, 0) }
}

/// The cards, on a node that oversubscribes their memory by 2, with so much host memory.
pub(crate) fn twice(cards: Vec<Card>, host_gib: u64) -> Vec<Card> {
    let oversubscription = Some(Oversubscription { memory_scale: 200, host_memory: Memory::mib(host_gib << 10) });
    cards.into_iter().map(|card| Card { oversubscription, ..card }).collect()
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
