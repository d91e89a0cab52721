//! `divvy-webhook`: the cluster side of Divvy.
//!
//! ```text
//! nodes, pods, GpuNodes ──watch──▶ index ◀──reserve, release── extender ◀── kube-scheduler
//!                                    │
//!                                    └──▶ hints, explanations        admission ◀── API server
//! ```
//!
//! Listeners are `connections`, with the certificates of `tls`. Where it is switched on, `aggregated_api` serves what the `GpuNode`s
//! say to kube-apiserver.
//!
//! The webhook owns nothing durable but its certificates, answers from memory, and may be killed at any time. Its answer about a node is a prediction, made with the node's own placement code; the node decides.

pub mod access;
pub mod admission;
pub mod aggregated_api;
pub mod args;
pub mod binder;
pub mod config;
pub mod connections;
pub mod debug;
pub mod endpoint_slice;
pub mod events;
pub mod extender;
pub mod leadership;
pub mod lease;
pub mod metrics;
pub mod planner;
pub mod readiness;
pub mod run;
pub mod serve;
pub mod soft_taints;
pub mod tls;
pub mod wake_ups;
pub mod watches;
