//! `kubectl divvy`, which asks the API server and writes nothing.
//!
//! ```text
//! cli ──▶ inspect ──▶ fetch ──▶ cluster ──▶ API server
//!            │          └─ GpuNodes as they stand, and their Nodes
//!            ├─ read, report: what they say and what it adds up to     pure
//!            └─ table, or JSON and YAML                                pure
//! ```

pub mod cli;
pub mod cluster;
pub mod inspect;
mod text;
