//! `kubectl divvy`, which asks the API server and writes nothing.
//!
//! ```text
//! cli ─┬▶ view ─┬▶ inspect ──▶ fetch ──▶ cluster ──▶ API server
//!      │        │     │          └─ GpuNodes as they stand, and their Nodes
//!      │        │     ├─ read, report: what they say and what it adds up to     pure
//!      │        │     └─ table, or JSON and YAML                                pure
//!      │        ├▶ explain ──▶ fetch ──▶ divvy_index, one query
//!      │        │     └─ tables, hints                                          pure
//!      │        ├▶ dashboard ──▶ watches ──▶ a page in the browser
//!      │        ├▶ top ──▶ each daemon's /usage, through the API server
//!      │        └▶ quota ──▶ explain's fetch ──▶ divvy_index
//!      └▶ admin ┬▶ doctor ──▶ objects ──▶ a table of checks                     pure
//!               ├▶ migrate ──▶ divvy_systems, on pods of a cluster or of a file    pure
//!               ├▶ debug_bundle ──▶ objects, programs ──▶ an archive
//!               └▶ simulate ──▶ divvy_simulate                                   pure
//! ```

pub mod admin;
pub mod cli;
pub mod cluster;
mod config;
mod manifests;
pub mod output;
mod text;
pub mod view;
