//! Allocatable memory and compute of a node's GPUs, which scheduler and kubelet count.

use divvy_api::ResourceNames;
use divvy_api::gpunode::Scales;
use divvy_api::pod::peak;
use divvy_api::request::Totals;
use divvy_api::{Cores, Memory};

use crate::inventory::{CardHealth, CardInfo, Inventory};
use crate::ledger::Allocations;

/// Allocatable amounts of all GPUs of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Memory in MiB.
    pub memory: u64,
    /// Memory in percent of a GPU.
    pub percent: u64,
    /// Compute in percent of a GPU.
    pub cores: u64,
}

// === impl Amounts ===

impl Amounts {
    /// Sum of what is allocated in each form and what is free on healthy GPUs.
    ///
    /// A share in one form reduces what is free, and so what is allocatable in the other forms: they can't add up to more
    /// than the GPU. Allocated amounts are always included, also those of unhealthy GPUs: a kubelet that restarts admits
    /// its running pods against these amounts again.
    pub fn of(allocations: &Allocations, inventory: &Inventory, scales: Scales) -> Self {
        let held = allocations.pods().map(|entry| {
            peak(entry.containers.iter().map(|container| (container.request.kind, container.request.counted)))
        });
        let healthy = inventory.cards.iter().filter(|card| card.health == CardHealth::Healthy);
        let free = healthy.map(|card| free(allocations, card, scales));
        held.map(Self::from).chain(free).fold(Self::default(), Self::plus)
    }

    /// Amounts with the names of their resources.
    pub fn named(self, names: &ResourceNames) -> [(&str, u64); 3] {
        [
            (names.memory.as_str(), self.memory),
            (names.memory_percentage.as_str(), self.percent),
            (names.cores.as_str(), self.cores),
        ]
    }

    fn plus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_add(other.memory),
            percent: self.percent.saturating_add(other.percent),
            cores: self.cores.saturating_add(other.cores),
        }
    }
}

impl From<Totals> for Amounts {
    fn from(Totals { memory, percent, cores, .. }: Totals) -> Self {
        Self { memory, percent, cores }
    }
}

/// Amounts still free on a GPU, rounded down in each form.
pub fn free(allocations: &Allocations, card: &CardInfo, scales: Scales) -> Amounts {
    let held = allocations.held(&card.id, None);
    if held.exclusive {
        return Amounts::default();
    }
    let memory = card.memory.percent(scales.memory).saturating_sub(held.memory);
    let cores = Cores::new(scales.cores).saturating_sub(held.cores);
    Amounts { memory: memory.as_mib(), percent: percent_of(memory, card.memory), cores: cores.units().into() }
}

/// The largest percentage of `whole` that `part` can give.
fn percent_of(part: Memory, whole: Memory) -> u64 {
    part.as_mib().saturating_mul(100).checked_div(whole.as_mib()).unwrap_or(0)
}
