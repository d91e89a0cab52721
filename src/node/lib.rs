//! divvy-node: the daemon that owns the cards of one node.
//!
//! ```text
//! nvml ──▶ inventory ──▶ ┌───────────┐ ◀── identity ◀── kubelet's pod list (or unlisted)
//!                        │ allocation│
//! kubelet ──▶ plugin ──▶ │ (+ placement) ──▶ ledger (journal)
//!                        └───────────┘ ──▶ container (limits, CDI, isolation) ──▶ kubelet's answer
//! apiserver, http, usage ◀── ledger and inventory
//! ```
//!
//! `allocation` decides and is plain and synchronous; everything async is at the edges: `kubelet`, `observer`, `apiserver`, `http`.

pub mod allocation;
pub mod amounts;
pub mod apiserver;
pub mod args;
pub mod bound;
pub mod config;
pub mod container;
pub mod http;
pub mod identity;
pub mod inventory;
pub mod kubelet;
pub mod ledger;
pub mod nvml;
pub mod observer;
pub mod run;
pub mod unlisted;
pub mod usage;
