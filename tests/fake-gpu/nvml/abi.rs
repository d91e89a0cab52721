//! NVML's C functions: pointers and codes outside, [`crate::driver`] inside.
//!
//! The tables of functions are the library's table of contents. What isn't there doesn't exist to a caller, which
//! gets along: nvml-wrapper fails such a call with `FailedToLoadSymbol`.
#![allow(unsafe_code, reason = "a C interface")]
#![allow(non_snake_case, reason = "the names are NVML's")]

mod card;
mod library;
mod mig;
mod write;

use nvml_wrapper_sys::bindings::{nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t};

use crate::scenario::NvmlReturn;

fn code(answer: Result<(), NvmlReturn>) -> nvmlReturn_t {
    match answer {
        Ok(()) => nvmlReturn_enum_NVML_SUCCESS,
        Err(error) => error as nvmlReturn_t,
    }
}
