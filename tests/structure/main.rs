//! What holds of the whole source tree: modules form no cycle, crates depend in one direction, third-party code is what
//! `deny.toml` allows, and names and prose use the field's words. `docs/development.md` says how to run each test alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod crates;
mod cycles;
mod dependencies;
mod documents;
mod form;
mod lexer;
mod modules;
mod names;
mod report;
mod words;
mod workspace;
