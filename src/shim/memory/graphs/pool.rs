//! What a card's pool of memory for graphs is charged with, and what it will grow by.

use crate::cuda::{CUdevice, GRAPH_RESERVED};
use crate::driver::cuda::cuDeviceGetGraphMemAttribute;

use super::super::quota::Quota;
use super::super::resources::Resource;
use super::needs::Need;

/// What the graphs of this process cost a card, in bytes.
#[derive(Clone, Copy)]
pub(super) struct GraphPool {
    /// How many executable graphs allocate memory, what all those take that leave it allocated, and what the largest other one
    /// takes: or took, until the pool is trimmed.
    count: u64,
    kept: u64,
    pub(super) largest: u64,
    /// What the driver takes for their nodes.
    nodes: u64,
    /// What is charged: the nodes, and what graphs need or the card has reserved for them if that is more.
    pub(super) charged: u64,
    /// What of the reserved memory may be in use, whatever the streams below have.
    busy: u64,
    streams: [Stream; STREAMS],
    pub(super) device: CUdevice,
}

/// A stream in which graphs were launched since the pool was trimmed.
#[derive(Clone, Copy)]
struct Stream {
    /// Handle of the stream.
    handle: usize,
    /// What its largest graph takes, in bytes; 0: this place is free.
    bytes: u64,
}

/// Streams that are told apart. With one more, all that is reserved counts as in use.
const STREAMS: usize = 8;

// === impl GraphPool ===

impl GraphPool {
    pub(super) const NONE: Self = Self {
        count: 0,
        kept: 0,
        largest: 0,
        nodes: 0,
        charged: 0,
        busy: 0,
        streams: [Stream { handle: 0, bytes: 0 }; STREAMS],
        device: 0,
    };

    pub(super) fn add(&mut self, need: Need) {
        self.device = need.device;
        self.nodes = self.nodes.saturating_add(need.nodes);
        self.count += u64::from(need.bytes > 0);
        (self.kept, self.largest) = self.with(need);
    }

    /// What those that keep memory and the largest other would take beside another graph.
    fn with(&self, Need { bytes, keeps, .. }: Need) -> (u64, u64) {
        if keeps { (self.kept.saturating_add(bytes), self.largest) } else { (self.kept, self.largest.max(bytes)) }
    }

    pub(super) fn remove(&mut self, graph: Resource) {
        let (nodes, keeps) = unpack(graph.of);
        self.nodes = self.nodes.saturating_sub(nodes);
        if keeps {
            // What it has left allocated is still there.
            self.kept = self.kept.saturating_sub(graph.bytes);
            self.busy = self.busy.saturating_add(graph.bytes);
        }
        self.count = self.count.saturating_sub(u64::from(graph.bytes > 0));
        if self.count == 0 {
            (self.kept, self.largest) = (0, 0);
        }
    }

    /// What is charged for memory.
    fn granted(&self) -> u64 {
        self.charged.saturating_sub(self.nodes)
    }

    /// What must be reserved to make a graph executable.
    pub(super) fn short_of(&self, need: Need) -> u64 {
        let (kept, largest) = self.with(need);
        kept.saturating_add(largest).saturating_sub(self.granted())
    }

    /// What must be reserved for a launch, if all streams' graphs run at once.
    pub(super) fn short_of_launch(&self, stream: usize, bytes: u64) -> u64 {
        let is_here = |known: &&Stream| known.handle == stream;
        if self.streams.iter().filter(is_here).any(|known| bytes > 0 && known.bytes >= bytes) {
            return 0; // its memory is there
        }
        let others = self.streams.iter().filter(|known| !is_here(known)).map(|known| known.bytes);
        let all = others.fold(self.kept.saturating_add(self.busy), u64::saturating_add);
        all.saturating_add(bytes).saturating_sub(self.granted())
    }

    pub(super) fn launched(&mut self, stream: usize, bytes: u64) {
        let here = self.streams.iter().position(|known| known.bytes > 0 && known.handle == stream);
        let place = here.or_else(|| self.streams.iter().position(|known| known.bytes == 0));
        if place.is_none() {
            self.forget_streams();
        }
        if let Some(known) = self.streams.get_mut(place.unwrap_or(0)) {
            *known = Stream { handle: stream, bytes: known.bytes.max(bytes) };
        }
    }

    /// Takes all that the card has reserved to be in use.
    pub(super) fn forget_streams(&mut self) {
        self.busy = self.reserved();
        self.streams = Self::NONE.streams;
    }

    fn reserved(&self) -> u64 {
        let mut reserved = 0_u64;
        // SAFETY: the attribute has 64 bits.
        unsafe { cuDeviceGetGraphMemAttribute(self.device, GRAPH_RESERVED, (&raw mut reserved).cast()) };
        reserved
    }

    /// Charges what is needed or reserved now.
    pub(super) fn reconcile(&mut self, quota: Quota) {
        let needed = self.kept.saturating_add(self.largest);
        let now = self.reserved().max(needed).saturating_add(self.nodes);
        quota.change(self.charged, now);
        self.charged = now;
    }
}

/// What a resource says `of` an executable graph.
pub(super) fn pack(nodes: u64, keeps: bool) -> u64 {
    nodes << 1 | u64::from(keeps)
}

/// What its nodes take, and whether it leaves memory allocated.
pub(super) fn unpack(of: u64) -> (u64, bool) {
    (of >> 1, of & 1 == 1)
}
