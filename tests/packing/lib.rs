//! How much of a cluster's GPUs placement policies leave unused: Divvy's own beside published ones, asked about all nodes or
//! behind a kube-scheduler that is played cycle by cycle.
//!
//! ```text
//! divvy_simulate: trace, workload, fill ──▶ contenders ──▶ benches/packing: tables, JSON, picture
//!                    shares, variants, churn ─┘    └─▶ setup ──▶ kube_scheduler, learning
//!                                                  └─▶ published
//! ```

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "what is counted here is bounded by the readers of files and flags: far below 2^53"
)]

pub mod churn;
pub mod contenders;
#[cfg(test)]
#[path = "../../src/simulate/fixture.rs"]
mod fixture;
pub mod kube_scheduler;
pub mod learning;
pub mod plot;
pub mod published;
pub mod setup;
pub mod shares;
pub mod variants;

use std::path::{Path, PathBuf};

#[cfg(test)]
use divvy_simulate::{cluster, trace, workload};

/// Folder of the openb traces beside the workspace, if there is one.
pub fn traces() -> Option<PathBuf> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find_map(|folder| Some(folder.join("shared/traces")).filter(|traces| traces.is_dir()))
}
