//! divvy-node: the daemon that owns the cards of one node.
//!
//! ```text
//! nvml ──────────▶ run/cards ──▶ ┌────────────────┐ ◀── pod_source ◀── the kubelet's pods and records, the API server's pods
//!                                │ divvy_node_core│
//! kubelet/plugin ── calls ─────▶ │                │ ──▶ container_setup ──▶ delivery, tiers: directories, limits, CDI
//! kubelet/reconcile ── timer ──▶ └────────────────┘
//!                                  └ ledger ──▶ publish, metrics, http, usage
//! ```
//!
//! Whose call it is, which cards it gets and what is written down is decided in [`divvy_node_core`]. Here is everything around
//! it that speaks with the world; [`run`] puts the parts together.

pub mod args;
pub mod bound;
pub mod config;
pub mod container_setup;
pub mod delivery;
pub mod desired;
pub mod health;
pub mod http;
pub mod inventory;
pub mod kubelet;
pub mod metrics;
pub mod mps;
pub mod pod_source;
pub mod publish;
pub mod run;
pub mod tiers;
pub mod usage;

pub use divvy_node_core::ledger;
