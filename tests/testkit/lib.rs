//! What tests start and look at: our programs as processes, pods as users write them, and what containers were given.

pub mod binaries;
pub mod books;
pub mod browser;
pub mod daemon;
pub mod json_server;
pub mod metrics;
pub mod namespace;
pub mod outside;
pub mod own_part;
pub mod pages;
pub mod pods;
pub mod process;
