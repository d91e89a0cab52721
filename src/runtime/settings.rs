//! Settings of Divvy's long-running programs.
//!
//! ```text
//! flags ──────────────┐
//! environment ────────┼─▶ Keys, one of each source ──or──▶ Keys ──resolve──▶ Config
//! own file ──read─────┤
//! cluster's file ─────┘
//! ```
//!
//! A program lists its keys once, with [`keys!`](crate::keys!). A key is written in camel case in the file (`slotsPerCard`), as a flag
//! (`--slots-per-card`) and as an environment variable (`SLOTS_PER_CARD`). A flag wins over the environment, the
//! environment over the program's own file, that over the cluster's file, and that over the default. The cluster's file, from
//! the ConfigMap `divvy-config`, has the keys that all programs must agree on.
//!
//! Which keys there are, and what they must agree on, is the program's to say; nothing here knows one of them.

mod address;
mod args;
mod error;
mod file;
pub mod keys;
mod names;
mod path;
mod values;

#[cfg(test)]
mod tests;

pub use crate::logging::{LogFilter, LogFormat};
pub use address::LoopbackAddress;
pub use args::{EX_USAGE, FileFlags, Sources, Stop, described};
pub use divvy_api::config::{Advertise, ClusterConfig, DefaultMemory, List, Switch, Version, Within, from_text};
pub use error::ConfigError;
pub use file::{read, read_cluster, to_yaml};
pub use keys::KeySet;
pub use names::ObjectName;
pub use path::AbsolutePath;
pub use values::Period;
