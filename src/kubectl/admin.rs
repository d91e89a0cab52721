//! Subcommands for administrators: checks of the installation, what a maintainer needs, other systems' pods, other policies.

pub mod debug_bundle;
mod dialects;
pub mod doctor;
mod limits;
pub mod migrate;
pub mod simulate;
