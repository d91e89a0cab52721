//! The product's own policies, by the product's own code.

use divvy_api::annotation::{PolicyName, Preferences};
use divvy_api::{ContainerKind, ContainerRequest, Cores, GpuRequest, Memory, Totals};
use divvy_placement::{Card, Held, PodRequest, Policy, plan};

use super::super::{CardSet, Machine};

const CARD_MEMORY: Memory = Memory::mib(80 << 10);

/// The cards that a request gets of these, while all others are held by somebody alone.
pub(crate) fn product(machine: &Machine, name: PolicyName, free: CardSet, wanted: u32) -> CardSet {
    let cards: Vec<Card> = (0..machine.cards()).map(|at| card(at, free >> at & 1 == 1)).collect();
    let container = ContainerRequest {
        name: "main".to_owned(),
        kind: ContainerKind::App,
        request: Some(GpuRequest::whole(wanted)),
        profile: None,
        counted: Totals::default(),
    };
    let preferences = Preferences::default();
    let pod = PodRequest { containers: &[container], allocated: &[], shares: &[], preferences: &preferences };
    let plan = plan(&cards, &machine.links, &pod, &Policy { name, ..Policy::default() }).unwrap_or_default();
    plan.containers.iter().flat_map(|container| &container.chosen).fold(0, |set, card| set | 1 << card)
}

fn card(at: u32, is_free: bool) -> Card {
    let alone = Held { memory: CARD_MEMORY, cores: Cores::FULL, exclusive: true, pods: 1, ..Held::default() };
    Card {
        id: format!("GPU-{at}").parse().expect("letters, digits and dashes name a card"),
        model: "NVIDIA GPU".into(),
        profile: None,
        memory: CARD_MEMORY,
        memory_capacity: CARD_MEMORY,
        cores_capacity: Cores::FULL,
        healthy: true,
        numa: None,
        free_slots: 1,
        held: if is_free { Held::default() } else { alone },
        undivided: false,
        tier: divvy_api::Tier::Shim,
        oversubscription: None,
        busy: 0,
    }
}
