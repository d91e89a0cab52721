//! What `deploy/` says, compared with what the code does. Nothing is installed here; `tests/e2e` applies the manifests to a
//! real API server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod chart;
mod configuration;
mod examples;
mod gpu_operator;
mod images;
mod memory;
mod monitoring;
mod objects;
mod recipes;
mod rights;
mod scheduler;
mod schema;
mod typed;
mod webhooks;
