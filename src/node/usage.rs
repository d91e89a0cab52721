//! What containers really use of the cards: by the books that their own processes keep, and by the driver.
//!
//! ```text
//! regions ──pread──▶ accounts: what was counted, whatever becomes of a region ─┐
//! NVML ──▶ inventory ──▶ who is whose ──▶ judge: what no promise allows ───────┴▶ NodeUsage
//! cgroups, /proc ───────────▲                                                      │
//!                                            /usage, /metrics, events, GpuNode ◀───┘
//! ```
//!
//! What the driver charges a container beyond its books is told to its processes, who count it against its share.
//!
//! A region belongs to its tenant, who can write anything there and lies about its own share only. What the driver says
//! is nobody's to change; the two are shown beside each other, and a difference that matters is a finding.

mod accounts;
mod driver;
#[cfg(test)]
mod fixture;
mod judge;
mod kept;
mod overhead;
mod processes;
mod region;
mod watcher;

use std::collections::HashSet;

use divvy_api::usage::ContainerRef;
use divvy_api::{CardId, Share};

use divvy_node_core::ledger::Nonce;
pub use watcher::{Watcher, watch};

/// A container that holds shares.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    of: ContainerRef,
    nonce: Nonce,
    /// In the order of its limits file, by which its region numbers the cards.
    parts: Vec<(CardId, Share)>,
    /// What the driver charges beyond its books, in bytes, of each part.
    overheads: Vec<u64>,
    /// It has a region, so its processes should be in it.
    has_library: bool,
    /// All processes of its pod can be seen. Those of others can't by a daemon in a PID namespace of its own.
    is_visible: bool,
}

// === impl Holder ===

impl Holder {
    /// What the driver charges beyond its books on a card, in bytes.
    fn overhead(&self, card: &CardId) -> u64 {
        let mut parts = self.parts.iter().zip(&self.overheads);
        parts.find(|((held, _), _)| held == card).map_or(0, |(_, overhead)| *overhead)
    }
}

/// The processes that have a slot in a container's region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seats {
    /// Those that hold their slot's lock, by the host's numbers.
    pids: HashSet<u32>,
    /// All, as the slots name them: the container's number, and the start.
    owners: HashSet<processes::Identity>,
}

/// A process on a card, as the driver shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OnCard {
    /// By the host's number.
    pid: u32,
    /// Memory, if the driver tells.
    bytes: Option<u64>,
    whose: Whose,
}

/// Whose process it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whose {
    /// That of the holder at this position; it has a slot in its region or not.
    Holder { at: usize, is_seated: bool },
    /// One of several holders in this pod: nobody can say which.
    Pod(String),
    /// Not known: there are pods whose processes can't all be seen.
    Unknown,
    /// A server of CUDA's multi-process service, which has what its clients share.
    Service,
    /// No holder's.
    Nobody,
}
