//! A small cluster on one machine: kubelet stand-ins, fake NVML and real `divvy-node` processes.
//!
//! ```text
//! arrivals (trace | mix) ──pods──▶ API server ◀──GpuNode, amounts, annotations─┐
//!                                   ▲      │ ▲ statuses                         │
//!                             bindings     ▼ │                                  │
//!                           scheduler   kubelet ──device plugin──▶ divvy-node ──┴─▶ fake NVML
//!                                   ▲      │                           ▲
//!                                   └── outside ──▶ checks, picture    └── chaos
//! ```
//!
//! Nothing here asks a daemon what it thinks it gave: `outside` reads what the kubelet was told and what containers got.

pub mod apiserver;
pub mod args;
pub mod arrivals;
pub mod binaries;
pub mod books;
pub mod chaos;
pub mod checks;
pub mod cluster;
pub mod console;
pub mod control_plane;
pub mod daemon;
pub mod kubelet;
pub mod mix;
pub mod outside;
pub mod own_part;
pub mod picture;
pub mod pods;
pub mod published;
pub mod report;
pub mod run;
pub mod scheduler;
pub mod session;
pub mod trace;
