//! Who dies and when, and the daemon's starts.

use divvy_api::{Card, ResourceNames};
use divvy_node::config::Advertise;
use divvy_node::kubelet::advertise::{self, Listing, Offer};
use proptest::prelude::*;
use proptest::sample::Index;

use super::Node;
use crate::seen;

/// Who dies during an Allocate, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Death {
    /// The daemon, before it is asked anything.
    BeforeProposal,
    /// The daemon, between the two calls.
    BeforeAllocate,
    /// The daemon, while it writes the record: directories are made, and some of the record's bytes are written.
    Torn(Index),
    /// The daemon, when everything is written.
    BeforeAnswer,
    /// The kubelet, before the answer reaches it.
    KubeletBeforeAnswer,
    /// Both, while the record is written.
    Both(Index),
}

// === impl Node ===

impl Node {
    /// The daemon dies and comes back, with or without a card.
    pub(crate) fn crash(&mut self, lost: Option<Index>) -> Result<(), TestCaseError> {
        seen("crash");
        self.daemon = None;
        let mut there = self.cards.clone();
        if let Some(lost) = lost {
            there.remove(lost.index(there.len()));
        }
        self.start_daemon_with(there)
    }

    /// The daemon dies, and comes back with another scale of oversubscription if it has one.
    pub(crate) fn rescale(&mut self, memory_scale: u32) -> Result<(), TestCaseError> {
        if let Some(oversubscription) = &mut self.disk.oversubscription {
            oversubscription.memory_scale = memory_scale;
        }
        self.crash(None)
    }

    pub(super) fn die_writing(&mut self, cut: Index) -> Result<(), TestCaseError> {
        seen("torn record");
        self.daemon = None;
        self.disk.tear(cut);
        self.start_daemon()
    }

    pub(super) fn start_daemon(&mut self) -> Result<(), TestCaseError> {
        self.start_daemon_with(self.cards.clone())
    }

    /// Until it has recovered, nothing is answered; by then every running container has its shares again.
    fn start_daemon_with(&mut self, cards: Vec<Card>) -> Result<(), TestCaseError> {
        self.late = None;
        let daemon = self.disk.open();
        daemon.set_cards(cards);
        let shown = self.shown();
        let recovered = daemon.recover(&shown);
        prop_assert!(recovered.is_ok(), "{recovered:?}");
        self.daemon = Some(daemon);
        self.advertise();
        self.only_live_directories()?;
        self.check()
    }

    pub(super) fn advertise(&mut self) {
        let listing = Listing { names: ResourceNames::default(), numa_topology: false, advertise: Advertise::Amounts };
        let allocator = self.daemon().allocator();
        let offers = advertise::offers(
            allocator.inventory(),
            allocator.ledger().allocations(),
            &allocator.units_given(),
            &listing,
        );
        drop(allocator);
        self.listed = offers.iter().flat_map(|offer| &offer.devices).map(|device| device.id.clone()).collect();
        for Offer { resource, devices } in offers {
            self.devices.replace_list(resource.as_str(), devices);
        }
    }
}
