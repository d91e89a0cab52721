//! What tenants can do with the directory that they write to, against a real `divvy-node` process.
//!
//! A test is a tenant: it writes where the runtime would have mounted its container's region. Each is run where the daemon gives
//! every region a file system of its own, and where nothing can be mounted, and ends the same way: the daemon serves, another tenant's
//! region is as it was, and nothing is left once the pod has ended.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod attacks;
mod files;
mod limits;
mod node;
mod restarts;
mod trees;
