//! `divvy-webhook`: the cluster side of Divvy.
//!
//! ```text
//! nodes, pods, GpuNodes ──watch──▶ index ◀──reserve, release── extender ◀── kube-scheduler
//!                                    │
//!                                    └──▶ hints, explanations        admission ◀── API server
//! ```
//!
//! It owns nothing durable but its certificates, answers from memory, and may be killed at any time. What it says of a
//! node is a prediction, made with the node's own placement code; the node is right.
//!
//! So far there are [`admission`], [`divvy_index`] and [`extender`]; nothing serves or feeds them yet.

pub mod admission;
pub mod binder;
pub mod extender;
pub mod fit;
mod text;
