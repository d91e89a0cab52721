//! A small cluster on one machine: kubelet stand-ins, fake NVML, and real `divvy-node` and `divvy-webhook` processes.
//!
//! ```text
//! arrivals (trace | mix) ──pods──▶ API server ◀──GpuNode, amounts, annotations─┐
//!                  reviews │ ▲ ▲      │ ▲ statuses                             │
//!                          ▼ │ │      ▼ │                                      │
//!            divvy-webhook ×2 ─┘    kubelet ──device plugin──▶ divvy-node ─────┴─▶ fake NVML
//!                          ▲ bindings │                            ▲
//!     filter, prioritize,  │          └── outside ──▶ checks,      └── chaos (and to divvy-webhook)
//!     bind                 └─ scheduler   reservations picture
//! ```
//!
//! Nothing here asks a daemon what it thinks it gave: `outside` reads what the kubelet was told and what containers got,
//! `reservations` what stands in the pods' annotations.

pub mod args;
pub mod arrivals;
pub mod chaos;
pub mod checks;
pub mod cluster;
pub mod console;
pub mod control_plane;
pub mod dashboard;
pub mod front;
pub mod install;
pub mod mix;
pub mod picture;
pub mod published;
pub mod report;
pub mod reservations;
pub mod run;
pub mod session;
pub mod text;
pub mod webhook;
