//! Subcommands that look: what pods hold and use of the GPUs, and why one waits.

pub mod dashboard;
pub mod explain;
pub(crate) mod gpushare;
pub mod inspect;
pub mod quota;
pub mod top;
