//! Units of memory and compute as devices, for clusters where nobody writes amounts to the Node.
//!
//! A unit belongs to a card, `GPU-<uuid>::c<n>` or `GPU-<uuid>::m<n>`, but says nothing of who holds what: a container's
//! cards are settled by its slots. As many units are healthy as are held in units and free beside that, so that shares
//! held otherwise come out of them, as they come out of amounts; those that pods were given are always among them.

use std::collections::BTreeSet;

use divvy_api::pod::peak;
use divvy_api::{Cores, Memory, ResourceName};
use divvy_proto::deviceplugin as api;

use super::{Listing, Offer};
use crate::amounts::free;
use divvy_node_core::inventory::{CardHealth, CardInfo, Inventory};
use divvy_node_core::ledger::{Book, ContainerEntry, PodEntry};

/// Units of compute and of memory, of all cards.
pub(super) fn offers(inventory: &Inventory, book: &Book, given: &BTreeSet<&str>, listing: &Listing) -> [Offer; 2] {
    let Listing { names, scales, .. } = listing;
    let unit = names.memory_unit.as_mib().max(1);
    let (mut of_cores, mut of_memory) = (Vec::new(), Vec::new());
    for card in &inventory.cards {
        let ((memory, cores), free) = (held(book, card), free(book, card, *scales));
        let (all, held) = (scales.cores.into(), cores.units().into());
        of_cores.extend(Units { kind: 'c', all, held, free: free.cores }.devices(card, given));
        let (all, held) = (card.memory.percent(scales.memory).as_mib() / unit, memory.as_mib().div_ceil(unit));
        of_memory.extend(Units { kind: 'm', all, held, free: free.memory / unit }.devices(card, given));
    }
    let offer = |resource: &ResourceName, devices| Offer { resource: resource.clone(), devices };
    // The longest list last: the kubelet takes a second over some thousand devices (seen on 1.36.3), and registers nobody
    // meanwhile.
    [offer(&names.cores, of_cores), offer(&names.memory, of_memory)]
}

/// One card's units of one kind.
struct Units {
    kind: char,
    all: u64,
    held: u64,
    free: u64,
}

/// Memory and compute of a card that pods hold in units: containers that named no units hold none.
fn held(book: &Book, card: &CardInfo) -> (Memory, Cores) {
    let of_container = |container: &ContainerEntry| {
        let parts = container.holding.iter().flat_map(|holding| &holding.parts);
        let mut share = parts.filter(|part| part.card == card.id).map(|part| part.share).next().unwrap_or_default();
        if container.request.counted.memory == 0 {
            share.memory = Memory::ZERO;
        }
        if container.request.counted.cores == 0 {
            share.cores = Cores::ZERO;
        }
        (container.request.kind, share)
    };
    let of_pod = |entry: &PodEntry| peak(entry.containers.iter().map(of_container));
    let shares = book.pods().map(of_pod);
    shares.fold((Memory::ZERO, Cores::ZERO), |(memory, cores), share| {
        (memory.saturating_add(share.memory), cores.saturating_add(share.cores))
    })
}

// === impl Units ===

impl Units {
    /// All of them, always: an ID that vanishes while it is held may crash the kubelet.
    fn devices(self, card: &CardInfo, given: &BTreeSet<&str>) -> Vec<api::Device> {
        let Self { kind, all, held, free } = self;
        let healthy = if card.health == CardHealth::Healthy { held.saturating_add(free) } else { held };
        let ids: Vec<String> = (0..all).map(|number| format!("{}::{kind}{number}", card.id)).collect();
        let given_here = ids.iter().filter(|id| given.contains(id.as_str())).count();
        let mut others = usize::try_from(healthy).unwrap_or(usize::MAX).saturating_sub(given_here);
        let device = |id: String| {
            let is_given = given.contains(id.as_str());
            let is_healthy = is_given || others > 0;
            others -= usize::from(is_healthy && !is_given);
            let health = if is_healthy { api::HEALTHY } else { api::UNHEALTHY }.to_owned();
            api::Device { id, health, topology: None }
        };
        ids.into_iter().map(device).collect()
    }
}
