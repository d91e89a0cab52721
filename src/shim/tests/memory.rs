//! The library in real processes: what they can have of a card's memory, and what they are shown of it.

#![allow(unsafe_code, reason = "calling C functions")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "64-bit Linux alone")]
#![allow(clippy::panic, reason = "helpers of tests")]
#![allow(dead_code, reason = "not every test program needs all of what they share")]

#[path = "memory/charges.rs"]
mod charges;
mod container;
#[path = "memory/entry.rs"]
mod entry;
#[path = "memory/frameworks.rs"]
mod frameworks;
#[path = "memory/overhead.rs"]
mod overhead;
#[path = "memory/oversubscribed.rs"]
mod oversubscribed;
#[path = "memory/processes.rs"]
mod processes;
#[path = "memory/scarce.rs"]
mod scarce;
#[path = "memory/shell.rs"]
mod shell;
