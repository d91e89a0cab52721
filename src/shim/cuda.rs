//! What is needed of CUDA's driver API, by the names of `cuda.h`.

use core::ffi::{c_int, c_void};

pub(crate) type CUresult = c_int;
/// Its ordinal.
pub(crate) type CUdevice = c_int;
pub(crate) type CUdeviceptr = u64;
pub(crate) type CUcontext = *mut c_void;
pub(crate) type CUstream = *mut c_void;

pub(crate) const SUCCESS: CUresult = 0;
pub(crate) const ERROR_INVALID_VALUE: CUresult = 1;
pub(crate) const ERROR_OUT_OF_MEMORY: CUresult = 2;
pub(crate) const ERROR_NOT_FOUND: CUresult = 500;
/// "The attempted operation is not permitted."
pub(crate) const ERROR_NOT_PERMITTED: CUresult = 800;

/// 16 bytes that tell cards apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CUuuid(pub(crate) [u8; 16]);
