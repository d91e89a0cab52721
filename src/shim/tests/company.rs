//! The library in the company of others: programs that know nothing of CUDA, allocators, sanitizers, profilers and tracers,
//! and C libraries that it wasn't written for. What a machine lacks of these is left out, and said.

#![allow(unsafe_code, reason = "calling C functions")]
#![allow(dead_code, reason = "not every test program needs all of what they share")]

#[path = "company/others.rs"]
mod others;
#[path = "company/programs.rs"]
mod programs;

mod container;
