//! divvy-node: the daemon that owns the GPUs of one node.
//!
//! ```text
//! nvml ───────▶ run/inventory ──▶ ┌─────────────────┐ ◀── pod_source ◀── the kubelet's pods and records, the API server's pods
//!                                 │ divvy_node_core │
//! kubelet/plugin ──── calls ────▶ │                 │ ──▶ container ──▶ directories, limits, CDI, isolation
//! run/reconcile ───── timer ────▶ └─────────────────┘
//!                                   └ ledger ──▶ apiserver, http, usage
//! ```
//!
//! Whose call it is, which cards it gets and what is written down is decided in [`divvy_node_core`]. Here is everything around
//! it that speaks with the world; [`run`] puts the parts together.

pub mod apiserver;
pub mod args;
pub mod cgroups;
pub mod config;
pub mod container;
pub mod http;
pub mod kubelet;
pub mod nvml;
pub mod pod_list;
pub mod pod_source;
pub mod prompt;
pub mod run;
pub mod states;
pub mod token;
pub mod usage;
