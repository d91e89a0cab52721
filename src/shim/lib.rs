//! `libdivvy.so`: loaded into every process of a container before all else, it holds them to the container's share of each
//! card, and shows them that share as if it were the card.
//!
//! ```text
//!  program ── dlsym, dlvsym, cuGetProcAddress ──▶ hooks::library, resolver: the driver's answer, or our hook in its place
//!     │
//!     └────── cuMemAlloc, cuLaunchKernel, … ────▶ hook ──▶ what it is about: memory, launches, what is shown
//!                                                   │         │ limits, read-only, by the daemon
//!                                                   │         │ region, shared with the container's other processes
//!                                                   ▼         ▼
//!                                               the driver's own function
//! ```
//!
//! It is a guest in programs that know nothing of it, so it does without what could disturb them: no standard library, no
//! heap, no constructor, no thread-local, no signal handler, no environment variable, and no thread before a launch had to
//! wait. It calls the kernel directly, so `errno` stays as it was. What it doesn't know it passes through, and counts.
//!
//! [`hooks`] is the single list of what is hooked. A hook that finds no limits, or none that it can read, refuses: a
//! container with this library and without limits may use no GPU.

#![cfg_attr(not(test), no_std)]
#![allow(unsafe_code, reason = "it stands between programs in C and a driver in C")]
#![allow(unreachable_pub, reason = "hooks are reached by their names in C")]
#![cfg_attr(not(panic = "abort"), allow(dead_code, reason = "only the library, whose panics abort, has entries"))]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "words of 64-bit Linux, which C takes for pointers, sizes and errors alike"
)]
#![allow(non_snake_case, non_camel_case_types, reason = "the driver's names")]

mod cuda;
mod driver;
pub mod hooks;
mod limits;
mod linker;
mod lock;
mod log;
mod memory;
mod nvml;
mod once;
mod pace;
mod process;
mod sys;
mod text;
mod time;

#[cfg(all(not(test), panic = "abort"))]
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    log::line(format_args!("internal error in libdivvy.so: this process is ended"));
    sys::abort()
}
