//! divvy-node, with the fake NVML, beside a real control plane, kubelet and containerd.
//!
//! ```text
//! etcd ◀── kube-apiserver ◀── controller-manager, scheduler
//!               ▲
//!   scenarios ──┤           containers ◀── runc ◀── containerd
//!               ▼                                      ▲
//!            kubelet ──device plugin──▶ divvy-node     │ CRI
//!               └──────────────────────────────────────┘
//! ```
//!
//! The programs come from the directory that `KUBE_BIN_DIR` names. They run in a mount and a PID namespace of their
//! own, because a kubelet's directories can't all be moved, and because nothing then survives the test. What is checked
//! is what containers have: their processes' environment, mounts and device nodes; daemon, kubelet and what the daemon
//! writes to the API server must agree with it. The manifests' RBAC and policies are in force.

pub mod api;
pub mod audit;
pub mod certs;
pub mod checkpoint;
pub mod checks;
pub mod cluster;
pub mod containers;
pub mod contract;
pub mod control_plane;
pub mod daemon;
pub mod fakes;
pub mod figures;
pub mod files;
mod foreign_nvml;
pub mod image;
pub mod installation;
pub mod kubectl;
pub mod namespace;
pub mod network;
pub mod node;
pub mod pages;
pub mod pods;
pub mod program;
pub mod runner;
pub mod throwaway;
pub mod view;
pub mod webhook;
