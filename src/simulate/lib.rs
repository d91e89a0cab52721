//! Simulation of placement policies over a trace: Divvy's own beside best fit, on the same pods.
//!
//! ```text
//! trace ──▶ workload ──▶ fill: which pods come ──▶ run ──▶ study ──▶ report
//!                └──▶ target: expected requests   cluster ◀── policy ◀─┘
//! ```
//!
//! The simulator plays the scheduler's own filter for CPU and host memory, keeps its own account of what is free, and
//! measures all policies by it. The product's policies decide by the product's code: see [`extender::Extender`].

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "what is counted here is bounded by the readers of files and flags: far below 2^53"
)]

pub mod cluster;
pub mod extender;
pub mod fill;
#[cfg(test)]
mod fixture;
pub mod policy;
pub mod report;
pub mod run;
pub mod study;
pub mod target;
pub mod trace;
pub mod workload;

/// Random numbers that a seed determines, on every machine and with every version of Rust.
pub type Rng = rand::rngs::Xoshiro256PlusPlus;
