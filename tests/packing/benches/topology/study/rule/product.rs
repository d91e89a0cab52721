//! The product's own policies, by the product's own code.

use std::sync::Arc;

use divvy_api::annotation::{PolicyName, Preferences};
use divvy_api::{Card, ContainerKind, ContainerRequest, Cores, GpuRequest, Memory, NodeCards, Totals};
use divvy_placement::{Held, NodeState, PodRequest, Policy, plan};

use super::super::{CardSet, Machine};

const CARD_MEMORY: Memory = Memory::mib(80 << 10);

/// The cards that a request gets of these, while all others are held by somebody alone.
pub(crate) fn product(machine: &Machine, name: PolicyName, free: CardSet, wanted: u32) -> CardSet {
    let container = ContainerRequest {
        name: "main".to_owned(),
        kind: ContainerKind::App,
        request: Some(GpuRequest::whole(wanted)),
        profile: None,
        counted: Totals::default(),
    };
    let preferences = Preferences::default();
    let pod = PodRequest { containers: &[container], allocated: &[], shares: &[], preferences: &preferences };
    let plan = plan(&state(machine, free), &pod, &Policy { name, ..Policy::default() }).unwrap_or_default();
    plan.containers.iter().flat_map(|container| &container.chosen).fold(0, |set, card| set | 1 << card)
}

/// The machine, all of whose cards but these are held by somebody alone.
fn state(machine: &Machine, free: CardSet) -> NodeState {
    let alone = Held { memory: CARD_MEMORY, cores: Cores::FULL, exclusive: true, pods: 1, slots: 1, ..Held::default() };
    let held = |at: u32| if free >> at & 1 == 1 { Held::default() } else { alone };
    let cards = (0..machine.cards()).map(card).collect();
    let node = NodeCards { cards, links: Arc::new(machine.links.clone()), ..NodeCards::default() };
    NodeState { held: (0..machine.cards()).map(held).collect(), ..NodeState::empty(Arc::new(node)) }
}

fn card(at: u32) -> Card {
    let id = format!("GPU-{at}").parse().expect("letters, digits and dashes name a card");
    Card { model: "NVIDIA GPU".into(), slots: 1, ..Card::healthy(id, CARD_MEMORY) }
}
