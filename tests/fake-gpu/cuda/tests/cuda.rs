//! The library as programs use it: loaded by path, in one process and in several.

#![allow(unsafe_code, reason = "calling C functions")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the numbers of tests are small"
)]

#[path = "cuda/captures.rs"]
mod captures;
#[path = "cuda/dependent.rs"]
mod dependent;
#[path = "cuda/faults.rs"]
mod faults;
#[path = "cuda/lookup.rs"]
mod lookup;
#[path = "cuda/memory.rs"]
mod memory;
#[path = "cuda/program.rs"]
mod program;
#[path = "cuda/service.rs"]
mod service;
#[path = "cuda/signatures.rs"]
mod signatures;
#[path = "cuda/time.rs"]
mod time;
#[path = "cuda/turns.rs"]
mod turns;
#[path = "cuda/virtual_memory.rs"]
mod virtual_memory;
