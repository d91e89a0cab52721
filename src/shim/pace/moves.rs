//! The hooks of large memsets, and of large copies between device memory: they keep a card as busy as kernels do.
//!
//! What moves between a card and the host has engines of its own. Smaller ones, rows of pitched memory and of arrays, and
//! batches of copies aren't held back; in a stream with other work their time is charged with that.

use core::ffi::c_uint;
use core::ptr;

use super::is_unrestricted;
use super::launch::paced;
use super::work::Work;
use crate::cuda::{CUdeviceptr, CUresult, CUstream, MEMORY_TYPE_DEVICE, POINTER_MEMORY_TYPE, SUCCESS};
use crate::driver::cuda::cuPointerGetAttribute;

/// Bytes of the least memset or copy that is held back: a smaller one takes about as long as a launch, whatever its size.
const LARGE: u64 = 1 << 20;

/// `cuMemsetD8`, `D16` and `D32`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn fill<V: Copy, const IS_PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUdeviceptr, V, usize) -> CUresult,
    to: CUdeviceptr,
    value: V,
    count: usize,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    filled::<V>(ptr::null_mut(), IS_PER_THREAD, (count, 1), || unsafe { real(to, value, count) })
}

/// `cuMemsetD8Async`, `D16Async` and `D32Async`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn fill_async<V: Copy, const IS_PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUdeviceptr, V, usize, CUstream) -> CUresult,
    to: CUdeviceptr,
    value: V,
    count: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    filled::<V>(stream, IS_PER_THREAD, (count, 1), || unsafe { real(to, value, count, stream) })
}

/// `cuMemsetD2D8`, `D2D16` and `D2D32`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn fill_rows<V: Copy, const IS_PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUdeviceptr, usize, V, usize, usize) -> CUresult,
    to: CUdeviceptr,
    pitch: usize,
    value: V,
    width: usize,
    height: usize,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let ask = || unsafe { real(to, pitch, value, width, height) };
    filled::<V>(ptr::null_mut(), IS_PER_THREAD, (width, height), ask)
}

/// `cuMemsetD2D8Async`, `D2D16Async` and `D2D32Async`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn fill_rows_async<V: Copy, const IS_PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUdeviceptr, usize, V, usize, usize, CUstream) -> CUresult,
    to: CUdeviceptr,
    pitch: usize,
    value: V,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let ask = || unsafe { real(to, pitch, value, width, height, stream) };
    filled::<V>(stream, IS_PER_THREAD, (width, height), ask)
}

/// `cuMemcpy`, and `cuMemcpyDtoD`, whose ends needn't be asked about.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn copy<const IS_WITHIN: bool, const IS_PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize) -> CUresult,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let ask = || unsafe { real(to, from, bytes) };
    copied::<IS_WITHIN>(ptr::null_mut(), IS_PER_THREAD, (to, from, bytes), ask)
}

/// `cuMemcpyAsync`, and `cuMemcpyDtoDAsync` in the same way.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn copy_async<const IS_WITHIN: bool, const IS_PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize, CUstream) -> CUresult,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let ask = || unsafe { real(to, from, bytes, stream) };
    copied::<IS_WITHIN>(stream, IS_PER_THREAD, (to, from, bytes), ask)
}

/// Both ends are device memory by the function's name.
pub(crate) const WITHIN: bool = true;
/// They may be anything.
pub(crate) const ANYWHERE: bool = false;

/// As many rows of as many values are written.
fn filled<V>(
    stream: CUstream,
    is_per_thread: bool,
    (width, height): (usize, usize),
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let bytes = (width as u64).saturating_mul(height as u64).saturating_mul(size_of::<V>() as u64);
    if bytes < LARGE { ask() } else { paced(stream, is_per_thread, Work::moved(bytes), ask) }
}

/// So many bytes are read and written, if they are of a card.
fn copied<const IS_WITHIN: bool>(
    stream: CUstream,
    is_per_thread: bool,
    (to, from, bytes): (CUdeviceptr, CUdeviceptr, usize),
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let bytes = bytes as u64;
    let is_within = || IS_WITHIN || is_on_card(to) && is_on_card(from);
    if bytes < LARGE || is_unrestricted() || !is_within() {
        return ask();
    }
    paced(stream, is_per_thread, Work::moved(bytes.saturating_mul(2)), ask)
}

fn is_on_card(address: CUdeviceptr) -> bool {
    let mut kind: c_uint = 0;
    // SAFETY: a type is written to a type; of what is no address nothing is written.
    let result = unsafe { cuPointerGetAttribute((&raw mut kind).cast(), POINTER_MEMORY_TYPE, address) };
    result == SUCCESS && kind == MEMORY_TYPE_DEVICE
}
