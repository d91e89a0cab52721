//! What is needed of CUDA's driver API, by the names of `cuda.h`.

use core::ffi::{c_int, c_uint, c_void};

pub(crate) type CUresult = c_int;
/// Its ordinal.
pub(crate) type CUdevice = c_int;
pub(crate) type CUdeviceptr = u64;
pub(crate) type CUcontext = *mut c_void;
pub(crate) type CUstream = *mut c_void;
pub(crate) type CUevent = *mut c_void;
pub(crate) type CUfunction = *mut c_void;
pub(crate) type CUgraphExec = *mut c_void;

pub(crate) const SUCCESS: CUresult = 0;
pub(crate) const ERROR_INVALID_VALUE: CUresult = 1;
pub(crate) const ERROR_OUT_OF_MEMORY: CUresult = 2;
pub(crate) const ERROR_DEINITIALIZED: CUresult = 4;
pub(crate) const ERROR_NOT_FOUND: CUresult = 500;
/// Not yet.
pub(crate) const ERROR_NOT_READY: CUresult = 600;
/// "The attempted operation is not permitted."
pub(crate) const ERROR_NOT_PERMITTED: CUresult = 800;

/// 16 bytes that tell cards apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CUuuid(pub(crate) [u8; 16]);

/// `CU_STREAM_LEGACY`: the default stream that all threads share.
pub(crate) const STREAM_LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`: the calling thread's.
pub(crate) const STREAM_PER_THREAD: usize = 2;
/// `CU_STREAM_CAPTURE_STATUS_NONE`
pub(crate) const CAPTURE_NONE: c_int = 0;
/// `CU_EVENT_DEFAULT`
pub(crate) const EVENT_DEFAULT: c_uint = 0;

/// The launch of a kernel, as `cuLaunchKernelEx` has it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUlaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: CUstream,
    pub(crate) attributes: *mut c_void,
    pub(crate) attribute_count: c_uint,
}

/// One launch of several at once.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_LAUNCH_PARAMS {
    pub(crate) function: CUfunction,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: CUstream,
    pub(crate) arguments: *mut *mut c_void,
}
