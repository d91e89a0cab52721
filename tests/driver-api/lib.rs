//! CUDA's driver API as programs call it: a library that is loaded at run time, and its functions by their names.
//!
//! Types are those of cudarc's bindings to `cuda.h`. cudarc's own functions don't serve here: they search one library for the
//! whole process, panic where it lacks one of them, and return an enumeration, which no code may be that it doesn't list.
//!
//! Methods aren't `unsafe`, so that a test reads like the program that it stands for. The caller keeps to CUDA's contract:
//! pointers are null or valid, and handles are the driver's.
#![allow(unsafe_code, reason = "calling C functions")]
#![allow(clippy::not_unsafe_ptr_arg_deref, reason = "said above")]
#![allow(clippy::panic, reason = "helpers of tests fail as they do")]
#![allow(clippy::too_many_arguments, non_snake_case, reason = "CUDA's functions")]

mod code;
mod functions;
mod narrow;
mod program;

pub use code::*;
pub use cudarc::driver::sys;
pub use functions::Cuda;
pub use narrow::{NarrowArray, NarrowArray3d};
pub use program::*;
