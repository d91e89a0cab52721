//! The amounts of memory and compute that the node offers, which scheduler and kubelet count (design §3.2).

use divvy_api::ResourceNames;
use divvy_api::gpunode::Scales;
use divvy_api::pod::peak;
use divvy_api::request::Totals;
use divvy_api::{Cores, Memory};

use divvy_node_core::inventory::{CardHealth, CardInfo, Inventory};
use divvy_node_core::ledger::Book;

/// Amounts over all cards of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// MiB.
    pub memory: u64,
    /// Percent of a card.
    pub percent: u64,
    /// Core units.
    pub cores: u64,
}

// === impl Amounts ===

impl Amounts {
    /// What is held in each form, and beside it what is free on healthy cards.
    ///
    /// A share held in one form comes out of what is free, and so out of what is offered in the others: forms can't be
    /// added up past the card. What is held is always offered, on whatever card: a kubelet that restarts admits its
    /// running pods against these amounts once more.
    pub fn of(book: &Book, inventory: &Inventory, scales: Scales) -> Self {
        let held = book.pods().map(|entry| {
            peak(entry.containers.iter().map(|container| (container.request.kind, container.request.counted)))
        });
        let healthy = inventory.cards.iter().filter(|card| card.health == CardHealth::Healthy);
        let free = healthy.map(|card| free(book, card, scales));
        held.map(Self::from).chain(free).fold(Self::default(), Self::plus)
    }

    /// By the names of the resources.
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

/// What a card could still give, rounded down in each form.
pub fn free(book: &Book, card: &CardInfo, scales: Scales) -> Amounts {
    let held = book.held(&card.id, None);
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
