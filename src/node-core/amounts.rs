//! Allocatable memory and compute of a node's GPUs, which scheduler and kubelet count.

use divvy_api::ResourceNames;
use divvy_api::gpunode::{Oversubscription, Scales};
use divvy_api::pod::{PodSum as _, peak};
use divvy_api::request::Totals;
use divvy_api::{Cores, Memory};

use crate::inventory::{CardHealth, CardInfo, Inventory};
use crate::ledger::Allocations;

/// Allocatable amounts of all GPUs of the node, by resource: the sum of what is allocated in each form and what is free on
/// healthy GPUs.
///
/// A share in one form reduces what is free, and so what is allocatable in the other forms: they can't add up to more
/// than the GPU. Of a GPU with oversubscribed memory as much is free as such pods can still request. Allocated amounts are
/// always included, also those of unhealthy GPUs: a kubelet that restarts admits its running pods against these amounts
/// again.
pub fn allocatable<'n>(
    allocations: &Allocations,
    inventory: &Inventory,
    (scales, oversubscription): (Scales, Option<Oversubscription>),
    names: &'n ResourceNames,
) -> [(&'n str, u64); 3] {
    let held = allocations.pods().map(|entry| {
        peak(entry.containers.iter().map(|container| (container.request.kind, container.request.counted)))
    });
    let healthy = inventory.cards.iter().filter(|card| card.health == CardHealth::Healthy);
    let mut oversubscribed = oversubscription.map(|of| Oversubscribed::new(allocations, of));
    let free = healthy.map(|card| match &mut oversubscribed {
        Some(oversubscribed) if !allocations.held(&card.id, None).host.is_zero() => {
            oversubscribed.free(allocations, card, scales)
        }
        _ => free(allocations, card, scales),
    });
    let amounts = held.chain(free).fold(Totals::default(), Totals::plus);
    [
        (names.memory.as_str(), amounts.memory),
        (names.memory_percentage.as_str(), amounts.percent),
        (names.cores.as_str(), amounts.cores),
    ]
}

/// Amounts still free on a GPU of a node with these scales, rounded down in each form.
pub fn free(allocations: &Allocations, card: &CardInfo, of_node: Scales) -> Totals {
    let (held, scales) = (allocations.held(&card.id, None), card.scales(of_node));
    if held.exclusive {
        return Totals::default();
    }
    let memory = card.memory.percent(scales.memory).saturating_sub(held.memory);
    let cores = Cores::new(scales.cores).saturating_sub(held.cores);
    let percent = percent_of(memory, card.memory);
    Totals { memory: memory.as_mib(), percent, cores: cores.units().into(), count: 0 }
}

/// Memory that pods can still be allocated beyond what is free of the GPUs.
struct Oversubscribed {
    /// In percent.
    memory_scale: u32,
    host_memory_left: Memory,
}

// === impl Oversubscribed ===

impl Oversubscribed {
    fn new(allocations: &Allocations, oversubscription: Oversubscription) -> Self {
        let Oversubscription { memory_scale, host_memory } = oversubscription;
        Self { memory_scale, host_memory_left: host_memory.saturating_sub(allocations.host_memory(|_| true)) }
    }

    /// Amounts of a GPU with oversubscribed memory; the host memory for that is left to no other.
    fn free(&mut self, allocations: &Allocations, card: &CardInfo, scales: Scales) -> Totals {
        let free = free(allocations, card, scales);
        let memory = Memory::mib(free.memory);
        let beyond = memory.percent(self.memory_scale).saturating_sub(memory).min(self.host_memory_left);
        self.host_memory_left = self.host_memory_left.saturating_sub(beyond);
        let memory = memory.saturating_add(beyond);
        Totals { memory: memory.as_mib(), percent: percent_of(memory, card.memory), ..free }
    }
}

/// The largest percentage of `whole` that `part` can give.
fn percent_of(part: Memory, whole: Memory) -> u64 {
    part.as_mib().saturating_mul(100).checked_div(whole.as_mib()).unwrap_or(0)
}
