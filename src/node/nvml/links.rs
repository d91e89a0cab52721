//! Links between cards. Read when a card is added, never during an allocation.

use std::collections::BTreeMap;

use divvy_api::{CardId, Link, Links};
use nvml_wrapper::{Device, Nvml};

use super::calls::{self, NvLinks};

/// Links by pair of cards, the lesser UUID first; they are kept when the driver is gone.
#[derive(Debug, Default)]
pub(super) struct LinkTable(BTreeMap<(CardId, CardId), Link>);

/// A card, as its links are read.
struct End<'n> {
    card: &'n CardId,
    device: Device<'n>,
    address: (u32, u32, u32),
    nvlinks: NvLinks,
}

/// Reads the links of all pairs of these cards; a card that doesn't answer is left out.
pub(super) fn read(nvml: &Nvml, cards: &[CardId]) -> LinkTable {
    let ends: Vec<End<'_>> = cards.iter().filter_map(|card| End::read(nvml, card)).collect();
    let mut table = LinkTable::default();
    for (at, b) in ends.iter().enumerate() {
        for a in &ends[..at] {
            if let Some(link) = link(nvml, a, b) {
                table.0.insert(pair(a.card, b.card), link);
            }
        }
    }
    table
}

fn link(nvml: &Nvml, a: &End<'_>, b: &End<'_>) -> Option<Link> {
    let direct = |from: &End<'_>, to: &End<'_>| from.nvlinks.cards.get(&to.address).copied().unwrap_or(0);
    // Every card on a switched fabric reaches every other with all of its links.
    let switched = a.nvlinks.switches.min(b.nvlinks.switches);
    match switched.max(direct(a, b)).max(direct(b, a)) {
        0 => calls::pci_link(&a.device, nvml.device_by_uuid(b.card.as_str()).ok()?),
        nvlinks => Some(Link::NvLink(nvlinks)),
    }
}

fn pair(a: &CardId, b: &CardId) -> (CardId, CardId) {
    (a.min(b).clone(), a.max(b).clone())
}

// === impl LinkTable ===

impl LinkTable {
    /// Merges a table of links that was just read.
    pub(super) fn update(&mut self, newer: Self) {
        self.0.extend(newer.0);
    }

    /// The links of these cards, by position.
    pub(super) fn links(&self, cards: &[CardId]) -> Links {
        let link = |a: usize, b: usize| self.0.get(&pair(&cards[a], &cards[b])).copied();
        Links::new(cards.len(), |a, b| link(a, b).unwrap_or_default())
    }
}

// === impl End ===

impl<'n> End<'n> {
    fn read(nvml: &'n Nvml, card: &'n CardId) -> Option<Self> {
        let device = nvml.device_by_uuid(card.as_str()).ok()?;
        let address = calls::pci_address(&device.pci_info().ok()?);
        let nvlinks = calls::nvlinks(nvml, &device);
        Some(Self { card, device, address, nvlinks })
    }
}
