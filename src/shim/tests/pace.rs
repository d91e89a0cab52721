//! The library in real processes: what time of a card they get, by the stand-in driver's own account.

#![allow(unsafe_code, reason = "calling C functions")]
#![allow(clippy::panic, reason = "a helper of tests fails as they do")]
#![allow(dead_code, reason = "not every test program needs all of what they share")]

mod container;
#[path = "pace/cost.rs"]
mod cost;
#[path = "pace/dependent.rs"]
mod dependent;
#[path = "pace/guest.rs"]
mod guest;
#[path = "pace/launchers.rs"]
mod launchers;
#[path = "pace/launches.rs"]
mod launches;
#[path = "pace/node.rs"]
mod node;
#[path = "pace/ranks.rs"]
mod ranks;
#[path = "pace/shares.rs"]
mod shares;
#[path = "pace/summary.rs"]
mod summary;
#[path = "pace/tenants.rs"]
mod tenants;
