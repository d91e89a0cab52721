//! Hooks of functions that wait for work: what is done then need not be asked for, and memory that was freed in a stream's order
//! has returned to its pool.

use crate::cuda::{CUcontext, CUevent, CUresult, CUstream};
use crate::memory::pools;
use crate::pace::end;

fn returned(result: CUresult) -> CUresult {
    pools::synchronised();
    result
}

/// `cuStreamSynchronize`.
///
/// # Safety
/// As the driver's.
pub(super) unsafe fn stream<const IS_PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUstream) -> CUresult,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    end::stream_wait(stream, IS_PER_THREAD, || returned(unsafe { real(stream) }))
}

/// `cuEventSynchronize`.
///
/// # Safety
/// As the driver's.
pub(super) unsafe fn event(real: unsafe extern "C" fn(CUevent) -> CUresult, event: CUevent) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    end::event_wait(|| returned(unsafe { real(event) }))
}

/// `cuCtxSynchronize`.
///
/// # Safety
/// As the driver's.
pub(super) unsafe fn context(real: unsafe extern "C" fn() -> CUresult) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    end::context_wait(None, || returned(unsafe { real() }))
}

/// `cuCtxSynchronize_v2`.
///
/// # Safety
/// As the driver's.
pub(super) unsafe fn context_v2(real: unsafe extern "C" fn(CUcontext) -> CUresult, context: CUcontext) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    end::context_wait(Some(context), || returned(unsafe { real(context) }))
}
