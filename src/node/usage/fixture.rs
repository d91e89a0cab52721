//! Containers, and the bytes of their regions, written as `libdivvy` would have or as nobody honest would.

use divvy_api::usage::ContainerRef;
use divvy_api::{CardId, Cores, Memory, Share};
use divvy_region::Owner;
use divvy_region::layout::{self, LINE};
use divvy_region::snapshot::{Snapshot, Usage};

use super::Holder;
use divvy_node_core::ledger::Nonce;

/// A region of one card.
pub(super) struct Books(pub(super) Vec<u8>);

/// The counters of a card, in the order of `layout::Card` after the bucket's two words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) launches: u64,
    pub(super) graph_launches: u64,
    pub(super) throttled_ns: u64,
    pub(super) ooms: u64,
    pub(super) unknown: u64,
}

// === impl Books ===

impl Books {
    pub(super) fn new(generation: u64) -> Self {
        let mut bytes = vec![0; layout::size(1)];
        bytes[..LINE].copy_from_slice(&layout::header(1, generation).expect("a number of cards"));
        Self(bytes)
    }

    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(&self.0).expect("a region")
    }

    pub(super) fn count(&mut self, counters: Counters) {
        let Counters { launches, graph_launches, throttled_ns, ooms, unknown } = counters;
        self.words(LINE, &[0, 0, launches, graph_launches, throttled_ns, 0, ooms, unknown]);
    }

    /// Gives a slot to a process, or takes it away.
    pub(super) fn seat(&mut self, slot: usize, owner: Option<Owner>) {
        let at = layout::slot_bytes(1, slot).start;
        let Owner { pid, started, nonce, .. } = owner.unwrap_or_default();
        let state = u64::from(owner.is_some());
        self.words(at, &[state | u64::from(pid) << 32, started, nonce]);
        let high = u64::from(u32::from_ne_bytes(self.0[28..32].try_into().expect("four")));
        let high = high.max(slot as u64 + 1);
        self.0[28..32].copy_from_slice(&u32::try_from(high).expect("small").to_ne_bytes());
    }

    pub(super) fn uses(&mut self, slot: usize, usage: Usage) {
        let at = layout::use_bytes(1, 0, slot + 1).end - LINE;
        let Usage { tentative, committed, imported, managed, contexts, in_flight_ns, busy_ns } = usage;
        self.words(at, &[tentative, committed, imported, managed, in_flight_ns, busy_ns, 0, contexts]);
    }

    pub(super) fn words(&mut self, at: usize, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.0[at..at + bytes.len()].copy_from_slice(&bytes);
    }
}

/// A process, whose nonce is drawn.
pub(super) fn owner(pid: u32, nonce: u64) -> Owner {
    Owner { pid, started: 1000 + u64::from(pid), nonce, ..Owner::default() }
}

pub(super) fn card(number: u8) -> CardId {
    format!("GPU-{number}").parse().expect("a UUID")
}

/// A container with 100 MiB of card 0.
pub(super) fn holder(pod: &str, has_library: bool) -> Holder {
    let of = ContainerRef {
        pod_uid: format!("uid-{pod}"),
        namespace: "team".to_owned(),
        pod: pod.to_owned(),
        container: "main".to_owned(),
    };
    let share = Share { memory: Memory::mib(100), cores: Cores::new(30), ..Share::default() };
    Holder {
        of,
        nonce: Nonce::random(),
        parts: vec![(card(0), share)],
        overheads: vec![0],
        unhooked: 0,
        has_library,
        is_visible: true,
    }
}
