//! Memory that the processes of one container share, and that in which the daemon publishes each card's clock.
//!
//! ```text
//!  process ─┐ claim ─ reserve ─ gate ─ debit                            pread ┌─ divvy-node
//!  process ─┼──────────────────────────────▶ the container's region ◀─────────┤  snapshot
//!  process ─┘                                                                 │
//!      ▲                                                                      │ publish
//!      └──────── how fast its time counts ────────── clock page of each card ◀┘
//! ```
//!
//! A region is a file on tmpfs that the daemon makes full-size, with [`layout::header`] and zeros, and every process of the
//! container maps. It belongs to the tenant, who can write anything into it: nothing here panics, overflows or indexes by
//! what it reads, and a tenant that lies does so about its own share only.
//!
//! - [`layout`]: where what stands; [`Region`], the view of mapped memory.
//! - [`accounts`]: memory, to the byte, without a lock and without a stored total.
//! - [`slots`]: which process owns which lines, and what becomes of them when it dies.
//! - [`bucket`]: GPU time: refill, debit, gate.
//! - [`coupling`]: gates of several cards that open together.
//! - [`clock`]: the daemon's page of one card: how many compete, and how time counts meanwhile.
//! - [`map`]: that page in the daemon's memory.
//! - [`snapshot`]: a region as the daemon reads it.
//! - [`limits`] and [`overhead`]: the daemon's files for a container, written and read.
//! - [`terms`]: how a container's shares are enforced; the words for it that all parts of Divvy share.
//!
//! It knows neither CUDA nor, but for [`map`], files. Locks and liveness come in through [`slots::Locks`], time as nanoseconds of
//! `CLOCK_MONOTONIC`.

#![cfg_attr(not(any(test, loom)), no_std)]
#![cfg_attr(loom, allow(dead_code, unused_imports, reason = "models map no memory"))]

pub mod accounts;
pub mod bucket;
pub mod clock;
#[cfg(not(loom))]
pub mod coupling;
pub mod layout;
#[cfg(not(loom))] // models read no files
pub mod limits;
#[cfg(all(feature = "map", not(loom)))] // models map no memory
pub mod map;
#[cfg(not(loom))]
pub mod overhead;
#[cfg(any(test, loom))]
pub mod owned;
pub mod slots;
#[cfg(not(loom))] // loom's atomics are larger than what they stand for
pub mod snapshot;
mod sync;
pub mod terms;

pub use accounts::{Account, Accounts, MemoryLimit, Reservation};
pub use bucket::{Estimate, Gate, Share};
pub use layout::{InvalidRegion, Region};
pub use slots::{Locks, Owner};
pub use terms::{Compute, ComputeLimit, Priority, Terms, Tier};

#[cfg(test)]
mod tests;
