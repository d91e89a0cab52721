//! Streams, as far as memory that is allocated in their order depends on them.

use core::ffi::c_int;
use core::ptr;

use crate::cuda::{
    CUcontext, CUdevice, CUresult, CUstream, ERROR_NOT_FOUND, ERROR_STREAM_CAPTURE_IMPLICIT, STREAM_LEGACY,
    STREAM_PER_THREAD, SUCCESS,
};
use crate::driver::cuda::{
    cuCtxGetDevice, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuStreamGetCtx, cuStreamGetDevice, cuStreamIsCapturing,
};
use crate::driver::current_context;

/// Whether work in a stream is recorded instead of done.
///
/// # Safety
/// A stream, or one of the numbers that mean a default stream.
pub(super) unsafe fn is_captured<const PER_THREAD: bool>(stream: CUstream) -> bool {
    let stream = named::<PER_THREAD>(stream);
    if matches!(stream.addr(), 0 | STREAM_LEGACY) {
        return false; // the one stream that can't be
    }
    let mut status: c_int = 0;
    // SAFETY: a status is written to a status. If it can't be told, the driver will refuse the work.
    let result = unsafe { cuStreamIsCapturing(stream, &raw mut status) };
    result == SUCCESS && status != 0
}

/// Whether the calling thread's default stream is captured, or the context's would take part in the capture of another. Of
/// streams that have a handle nobody but the program knows.
pub(super) fn thread_captures() -> bool {
    [STREAM_PER_THREAD, STREAM_LEGACY].into_iter().any(|stream| {
        let mut status: c_int = 0;
        // SAFETY: a number that means a default stream; a status is written to a status.
        let result = unsafe { cuStreamIsCapturing(ptr::without_provenance_mut(stream), &raw mut status) };
        result == ERROR_STREAM_CAPTURE_IMPLICIT || status != 0
    })
}

/// Null means another stream to functions of the per-thread kind than to those that are asked about it.
fn named<const PER_THREAD: bool>(stream: CUstream) -> CUstream {
    if PER_THREAD && stream.is_null() { ptr::without_provenance_mut(STREAM_PER_THREAD) } else { stream }
}

/// The card of a stream.
///
/// # Safety
/// As [`is_captured`].
pub(super) unsafe fn device_of<const PER_THREAD: bool>(stream: CUstream) -> Result<CUdevice, CUresult> {
    let mut device: CUdevice = 0;
    let checked = |result, device| if result == SUCCESS { Ok(device) } else { Err(result) };
    // SAFETY: devices and contexts are written to devices and contexts; the context is pushed and popped again.
    unsafe {
        if matches!(stream.addr(), 0 | STREAM_LEGACY | STREAM_PER_THREAD) {
            return checked(cuCtxGetDevice(&raw mut device), device);
        }
        match cuStreamGetDevice(stream, &raw mut device) {
            ERROR_NOT_FOUND => {} // before CUDA 12.8
            result => return checked(result, device),
        }
        let mut context: CUcontext = ptr::null_mut();
        checked(cuStreamGetCtx(named::<PER_THREAD>(stream), &raw mut context), 0)?;
        if context == current_context() {
            return checked(cuCtxGetDevice(&raw mut device), device);
        }
        checked(cuCtxPushCurrent_v2(context), 0)?;
        let result = cuCtxGetDevice(&raw mut device);
        cuCtxPopCurrent_v2(&raw mut context);
        checked(result, device)
    }
}
