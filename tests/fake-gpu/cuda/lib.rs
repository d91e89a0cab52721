//! A stand-in for `libcuda.so.1`: the driver's C functions without a card, for the library that holds programs to their
//! share of one.
//!
//! ```text
//! program ──▶ abi: C ──▶ driver: handles, addresses, contexts ──▶ engine: streams of a process on a card ──▶ fake-card
//!                                                                                                    shared file per card
//! ```
//!
//! What a program can see is real: codes, addresses, handles, memory to the byte across processes, versions of functions,
//! events, captures, the order of streams. What runs on the card is time, and what kernels do follows from their names:
//!
//! | kernel | arguments | |
//! |---|---|---|
//! | `busy_ns` | | lasts `gridDimX` nanoseconds |
//! | `spin_until` | `unsigned *flag, unsigned value` | has the card until the flag is at least the value |
//! | `write_flag` | the same | writes it |
//! | `meet_ns` | `u64 group, u32 rank, u32 ranks, u64 number, u64 lasts` | has the card until its like of all ranks run, in whatever process or on whatever card, and so many nanoseconds more |
//! | any other | | lasts 10 µs |
//!
//! Kernels of different streams run side by side, each as if it had the card to itself. Copies and memsets really move bytes,
//! at once and in no time of the card.
//!
//! Two environment variables say where: `FAKE_CUDA_CARDS` names a [`Machine`] file, `FAKE_CUDA_STATE` the directory of the
//! shared state. Without them they are `cards.json` and `state` beside the library. `CUDA_VISIBLE_DEVICES` chooses and orders
//! the cards. What isn't said in the file has a default:
//!
//! ```json
//! {
//!   "cards": [{ "uuid": "GPU-1", "model": "NVIDIA L4", "memory_total": 24000000000, "context_bytes": 300000000 }],
//!   "slice_us": 2000,
//!   "faults": { "cuMemAlloc_v2": { "code": "CUDA_ERROR_OUT_OF_MEMORY", "nth": 3 } },
//!   "delays_us": { "cuLaunchKernel": 5 },
//!   "lacks": ["cuMemAllocAsync"],
//!   "gains": { "cuMemAlloc_v3": { "like": "cuMemAlloc_v2", "since": 13000 } }
//! }
//! ```
//!
//! A process whose `CUDA_MPS_PIPE_DIRECTORY` names a live control daemon, such as that of `tests/fake-gpu/mps`, is a client of
//! CUDA's multi-process service: it takes no turns, has its limit of memory, and its kernels take as much longer as its part
//! of the card is smaller. Others get no context on a card whose compute mode is EXCLUSIVE_PROCESS.
//!
//! A test reads the truth about memory and time with [`fake_card::Card::open`] and [`fake_card::Card::usage`].
#![allow(unsafe_code, reason = "a C interface, and addresses that it gives out")]
#![allow(clippy::cast_possible_truncation, reason = "sizes and addresses are 64 bits wide wherever CUDA is")]

mod abi;
mod codes;
mod driver;
mod install;
mod machine;

pub use fake_card as card;

pub use abi::{signatures, versions};
pub use install::install;
pub use machine::{CardDescription, Fault, Gain, Machine, MachineError};
