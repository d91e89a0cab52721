//! `divvy-webhook`: the cluster side of Divvy.
//!
//! ```text
//! nodes, pods, GpuNodes ──watch──▶ index ◀──reserve, release── extender ◀── kube-scheduler
//!                                    │
//!                                    └──▶ hints, explanations        admission ◀── API server
//! ```
//!
//! It owns nothing durable but its certificates and what it has learned of requests, answers from memory, and may be killed at any time. What it says of a
//! node is a prediction, made with the node's own placement code; the node is right.

pub mod access;
pub mod admission;
pub mod args;
pub mod binder;
pub mod config;
pub mod endpoint_slice;
pub mod extender;
pub mod feed;
pub mod fit;
pub mod leadership;
pub mod lease;
pub mod metrics;
pub mod mix;
pub mod run;
pub mod serve;
pub mod tls;
pub mod waiting;
