//! The hooks of memsets, and of large copies within a card: they keep it as busy as kernels do.
//!
//! What moves between a card and the host, or to another card, has engines of its own. Rows of pitched memory, of arrays, and
//! batches of copies aren't held back; in a stream with other work their time is charged with that.

use core::ffi::c_uint;
use core::ptr;

use super::launch::paced;
use super::work::Work;
use crate::cuda::{CUdeviceptr, CUresult, CUstream, MEMORY_TYPE_DEVICE, POINTER_MEMORY_TYPE, SUCCESS};
use crate::driver::cuda::cuPointerGetAttribute;

/// Bytes of the least copy that is held back: smaller ones take less time than it takes to ask.
const LARGE: usize = 1 << 20;

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
    paced(ptr::null_mut(), IS_PER_THREAD, filled::<V>(count, 1), || unsafe { real(to, value, count) })
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
    paced(stream, IS_PER_THREAD, filled::<V>(count, 1), || unsafe { real(to, value, count, stream) })
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
    let work = filled::<V>(width, height);
    // SAFETY: the caller's arguments as they came.
    paced(ptr::null_mut(), IS_PER_THREAD, work, || unsafe { real(to, pitch, value, width, height) })
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
    let work = filled::<V>(width, height);
    // SAFETY: the caller's arguments as they came.
    paced(stream, IS_PER_THREAD, work, || unsafe { real(to, pitch, value, width, height, stream) })
}

/// `cuMemcpy`, and `cuMemcpyDtoD`, which needn't be asked where it copies.
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
    if bytes < LARGE || !(IS_WITHIN || is_on_card(to) && is_on_card(from)) {
        return ask();
    }
    paced(ptr::null_mut(), IS_PER_THREAD, copied(bytes), ask)
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
    if bytes < LARGE || !(IS_WITHIN || is_on_card(to) && is_on_card(from)) {
        return ask();
    }
    paced(stream, IS_PER_THREAD, copied(bytes), ask)
}

/// Both ends are on the card by the function's name.
pub(crate) const WITHIN: bool = true;
/// They may be anywhere.
pub(crate) const ANYWHERE: bool = false;

/// Bytes of as many rows are written.
fn filled<V>(width: usize, height: usize) -> Work {
    Work::moved((width as u64).saturating_mul(height as u64).saturating_mul(size_of::<V>() as u64))
}

/// They are read and written.
fn copied(bytes: usize) -> Work {
    Work::moved((bytes as u64).saturating_mul(2))
}

fn is_on_card(address: CUdeviceptr) -> bool {
    let mut kind: c_uint = 0;
    // SAFETY: a type is written to a type; of what is no address nothing is written.
    let result = unsafe { cuPointerGetAttribute((&raw mut kind).cast(), POINTER_MEMORY_TYPE, address) };
    result == SUCCESS && kind == MEMORY_TYPE_DEVICE
}
