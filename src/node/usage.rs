//! Measured GPU use of containers: by the accounting regions of their own processes, and by the driver.
//!
//! ```text
//! regions ──pread──▶ accounts: totals over all regions of a container ─────────┐
//! NVML ──▶ inventory ──▶ owner of each process ──▶ violations of shares ───────┴▶ NodeUsage
//! cgroups, /proc ───────────▲                                                      │
//!                                            /usage, /metrics, events, GpuNode ◀───┘
//! ```
//!
//! Memory that the driver charges a container beyond its accounting region is written to a file for its processes, which count
//! it against its share.
//!
//! A tenant can write anything to its region, but affects its own share only. No tenant can change the driver's figures. Both
//! are published, and a relevant difference is a share violation.

mod accounts;
mod driver;
pub(crate) mod driver_memory;
#[cfg(test)]
mod fixture;
mod overhead;
mod processes;
mod region;
mod violations;
mod watcher;

use std::collections::HashSet;

use divvy_api::usage::ContainerRef;
use divvy_api::{CardId, Share};

use divvy_node_core::ledger::Nonce;
pub use driver_memory::DriverMemoryTable;
pub use overhead::{Overheads, Processes};
pub use watcher::{Watcher, watch};

/// A container that holds shares.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    of: ContainerRef,
    nonce: Nonce,
    /// Shares in the order of the limits file, by which the region numbers the cards.
    parts: Vec<(CardId, Share)>,
    /// Bytes that the driver charges beyond the accounting region, for each part.
    overheads: Vec<u64>,
    /// Lookups of driver functions that the library doesn't know.
    unhooked: u64,
    /// Whether the container has a region, so that its processes should have slots.
    has_library: bool,
    /// Whether all processes of the pod are visible; a daemon in a PID namespace of its own may not see them.
    is_visible: bool,
}

// === impl Holder ===

impl Holder {
    /// Bytes that the driver charges beyond the accounting region on a card.
    fn overhead(&self, card: &CardId) -> u64 {
        let mut parts = self.parts.iter().zip(&self.overheads);
        parts.find(|((held, _), _)| held == card).map_or(0, |(_, overhead)| *overhead)
    }
}

/// The processes that have a slot in a container's region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Slots {
    /// PIDs on the host of processes that hold their slot's lock.
    pids: HashSet<u32>,
    /// All processes with a slot: PID in the container, and start time.
    owners: HashSet<processes::Identity>,
}

/// Process on a card, as reported by the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GpuProcess {
    /// PID on the host.
    pid: u32,
    /// Memory, if the driver reports it.
    bytes: Option<u64>,
    owner: ProcessOwner,
}

// === impl GpuProcess ===

impl GpuProcess {
    /// Whether it is a process of the holder at this position.
    fn is_of(&self, at: usize) -> bool {
        matches!(self.owner, ProcessOwner::Holder { at: found, .. } if found == at)
    }
}

/// Owner of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProcessOwner {
    /// The holder at this position, with or without a slot in its region.
    Holder { at: usize, has_slot: bool },
    /// One of several holders in this pod; not known which.
    Pod(String),
    /// Not known: there are pods whose processes can't all be seen.
    Unknown,
    /// A server of CUDA's multi-process service, which holds its clients' common memory.
    Service,
    /// No pod with a share.
    Nobody,
}
