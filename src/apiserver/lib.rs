//! `divvy-apiserver`: the aggregated API `metrics.nvidia.com/v1alpha1` of nvidia-gpu-scheduler, with standard lists and watches.
//!
//! ```text
//! GpuNodes ──watch──▶ nodes ──▶ objects ──▶ store ◀──list, watch── serve ◀──TLS── kube-apiserver ◀── kubectl, clients
//!                               pure        pure, one lock           ▲
//! ConfigMap extension-apiserver-authentication ──watch──▶ front_proxy┘ who may call
//! ```
//!
//! Only kube-apiserver calls, as the front proxy: it has authenticated and authorized the user before, by the roles of the
//! cluster. So no user is asked for here, and the headers that name one aren't read. State is the cluster's `GpuNode`s;
//! any replica may be killed at any time.

pub mod args;
pub mod config;
pub mod debug;
pub mod front_proxy;
pub mod metrics;
pub mod nodes;
pub mod objects;
pub mod run;
pub mod serve;
pub mod store;
pub mod watch_state;
