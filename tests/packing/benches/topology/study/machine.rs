//! Machines, and what of their links can be seen.

use divvy_api::{Link, Links};

use super::CardSet;

/// A machine with empty cards.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// For people.
    pub(crate) name: &'static str,
    /// What connects its cards.
    pub(crate) links: Links,
    /// What would connect them without NVLinks.
    pub(crate) pcie: Links,
    /// Its NVLinks lead to NVSwitches, not to other cards.
    pub(crate) is_switched: bool,
}

// === impl Machine ===

impl Machine {
    /// A machine with cards linked like this, 16 at most. All have two sockets with two cards on each PCIe switch, whatever
    /// else connects them.
    pub(crate) fn new(name: &'static str, links: Links) -> Self {
        Self { name, pcie: Links::pcie(links.cards()), links, is_switched: false }
    }

    /// The same, whose NVLinks lead to NVSwitches.
    #[must_use]
    pub(crate) fn switched(self) -> Self {
        Self { is_switched: true, ..self }
    }

    /// The machines that are measured.
    pub(crate) fn all_known() -> [Self; 6] {
        [
            Self::new("HGX H100", Links::nvswitch(8, 18)).switched(),
            Self::new("DGX-1 V100", Links::dgx1()),
            Self::new("2 x 4 NVLink", Links::quads(8, 4)),
            Self::new("PCIe, 8 cards", Links::pcie(8)),
            Self::new("HGX-2 V100", Links::nvswitch(16, 6)).switched(),
            Self::new("PCIe, 16 cards", Links::pcie(16)),
        ]
    }

    /// How many cards it has.
    pub(crate) fn cards(&self) -> u32 {
        self.links.cards() as u32
    }

    /// All of them.
    pub(crate) fn all(&self) -> CardSet {
        (1 << self.cards()) - 1
    }

    /// The worst link of a set, at whose pace collectives run; for one card, the best that there is.
    pub(crate) fn worst_link(&self, set: CardSet) -> Link {
        self.links.bottleneck(&positions(set).collect::<Vec<_>>()).unwrap_or(Link::NvLink(u32::MAX))
    }
}

/// GB/s in one direction, as NCCL assumes them (`src/graph/topo.h`): 20 for an NVLink of V100 to H100, 12 for a PCIe 3.0 x16
/// slot, 10 of these through an Intel CPU, 6 across its sockets. What NCCL doesn't tell apart has steps between.
pub(crate) fn bandwidth(link: Link) -> f64 {
    match link {
        Link::System => 6.0,
        Link::Node => 9.0,
        Link::HostBridge => 10.0,
        Link::MultiSwitch => 11.0,
        Link::SingleSwitch => 12.0,
        Link::NvLink(links) => 20.0 * f64::from(links),
    }
}

/// The positions of a set's cards, in order.
pub(crate) fn positions(set: CardSet) -> impl Iterator<Item = usize> {
    (0..CardSet::BITS as usize).filter(move |card| set >> card & 1 == 1)
}

/// All subsets of this size, in lexicographic order of their positions.
pub(crate) fn subsets(of: CardSet, size: u32) -> Vec<CardSet> {
    if size == 0 {
        return vec![0];
    }
    let (mut sets, mut rest) = (Vec::new(), of);
    while rest.count_ones() >= size {
        let first = rest & rest.wrapping_neg();
        rest &= !first;
        sets.extend(subsets(rest, size - 1).into_iter().map(|set| set | first));
    }
    sets
}
