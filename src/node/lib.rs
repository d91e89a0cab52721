//! divvy-node: the daemon that owns the cards of one node.
//!
//! ```text
//! NVML ──▶ inventory ──▶ ┌───────────┐ ◀── identity ◀── kubelet's pod list (or unlisted)
//!          health        │ allocation│
//! kubelet ──▶ plugin ──▶ │  (+ placement)  ──▶ ledger (journal)
//!                        └───────────┘ ──▶ delivery (limits, CDI) ──▶ kubelet's answer
//! ```
//!
//! `allocation` decides and is plain and synchronous; everything async is at the edges: `kubelet`, `observer`, `http`.

pub mod allocation;
pub mod args;
pub mod bound;
pub mod config;
pub mod delivery;
pub mod desired;
pub mod health;
pub mod http;
pub mod identity;
pub mod inventory;
pub mod kubelet;
pub mod ledger;
pub mod metrics;
pub mod mps;
pub mod observer;
pub mod publish;
pub mod run;
pub mod tiers;
pub mod unlisted;
pub mod usage;
