//! `kubectl divvy`, which asks the API server and writes nothing.
//!
//! ```text
//! cli ─┬▶ inspect ──▶ fetch ──▶ cluster ──▶ API server
//!      │     │          └─ GpuNodes as they stand, and their Nodes
//!      │     ├─ read, report: what they say and what it adds up to     pure
//!      │     └─ table, or JSON and YAML                                pure
//!      ├▶ explain ──▶ fetch ──▶ divvy_index, one query
//!      │     └─ tables, hints                                          pure
//!      ├▶ debug_bundle ──▶ objects, programs ──▶ an archive
//!      ├▶ doctor ──▶ objects ──▶ a table of checks                     pure
//!      ├▶ dashboard ──▶ watches ──▶ a page in the browser
//!      ├▶ top ──▶ each daemon's /usage, through the API server
//!      ├▶ quota ──▶ explain's fetch ──▶ divvy_index
//!      ├▶ migrate ──▶ divvy_dialects, on pods of a cluster or of a file    pure
//!      └▶ simulate ──▶ divvy_simulate                                   pure
//! ```

pub mod cli;
pub mod cluster;
mod config;
pub mod dashboard;
pub mod debug_bundle;
mod dialects;
pub mod doctor;
pub mod explain;
mod gpushare;
pub mod inspect;
mod limits;
mod manifests;
pub mod migrate;
pub mod output;
pub mod quota;
pub mod simulate;
mod text;
pub mod top;
