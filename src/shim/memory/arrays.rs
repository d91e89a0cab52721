//! Arrays and mipmapped arrays. Only the driver knows how they lie in memory, and it tells only of those that have none of
//! their own (`cuArrayGetMemoryRequirements`). So they are charged with what tiles come to, of 64 bytes by 8 rows, and
//! blocks of 64 KiB; and if that is more than half a page, whole pages.

use core::ffi::c_uint;
use core::ptr;

use crate::cuda::{
    ARRAY_DEFERRED, ARRAY_SPARSE, CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray, CUmipmappedArray, CUresult, SUCCESS,
};

use super::allocations::{give_back, held};
use super::pages;
use super::resources::Kind;

const TILE_BYTES: u64 = 64;
const TILE_ROWS: u64 = 8;
const BLOCK: u64 = 64 << 10;

/// `cuArrayCreate` and `cuArray3DCreate`, of programs with 32-bit addresses too.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create<Descriptor: Copy + Into<CUDA_ARRAY3D_DESCRIPTOR>>(
    real: unsafe extern "C" fn(*mut CUarray, *const Descriptor) -> CUresult,
    array: *mut CUarray,
    descriptor: *const Descriptor,
) -> CUresult {
    // SAFETY: a program gives a descriptor, or null.
    let bytes = unsafe { descriptor.as_ref() }.map(|descriptor| bytes(&(*descriptor).into(), 1));
    // SAFETY: the caller's arguments, but for where the array goes first.
    unsafe { create_for(Kind::Array, array, bytes, |array| real(array, descriptor)) }
}

/// `cuMipmappedArrayCreate`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create_mipmapped(
    real: unsafe extern "C" fn(*mut CUmipmappedArray, *const CUDA_ARRAY3D_DESCRIPTOR, c_uint) -> CUresult,
    array: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> CUresult {
    // SAFETY: a program gives a descriptor, or null.
    let bytes = unsafe { descriptor.as_ref() }.map(|descriptor| bytes(descriptor, levels));
    // SAFETY: the caller's arguments, but for where the array goes first.
    unsafe { create_for(Kind::MipmappedArray, array, bytes, |array| real(array, descriptor, levels)) }
}

/// `cuArrayDestroy`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(CUarray) -> CUresult, array: CUarray) -> CUresult {
    // SAFETY: the caller's argument as it came.
    give_back(Kind::Array, array.addr() as u64, || unsafe { real(array) })
}

/// `cuMipmappedArrayDestroy`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn destroy_mipmapped(
    real: unsafe extern "C" fn(CUmipmappedArray) -> CUresult,
    array: CUmipmappedArray,
) -> CUresult {
    // SAFETY: the caller's argument as it came.
    give_back(Kind::MipmappedArray, array.addr() as u64, || unsafe { real(array) })
}

impl From<CUDA_ARRAY_DESCRIPTOR> for CUDA_ARRAY3D_DESCRIPTOR {
    fn from(CUDA_ARRAY_DESCRIPTOR { width, height, format, channels }: CUDA_ARRAY_DESCRIPTOR) -> Self {
        Self { width, height, depth: 0, format, channels, flags: 0 }
    }
}

impl From<CUDA_ARRAY_DESCRIPTOR_v1> for CUDA_ARRAY3D_DESCRIPTOR {
    fn from(CUDA_ARRAY_DESCRIPTOR_v1 { width, height, format, channels }: CUDA_ARRAY_DESCRIPTOR_v1) -> Self {
        Self { width: width as usize, height: height as usize, depth: 0, format, channels, flags: 0 }
    }
}

impl From<CUDA_ARRAY3D_DESCRIPTOR_v1> for CUDA_ARRAY3D_DESCRIPTOR {
    fn from(narrow: CUDA_ARRAY3D_DESCRIPTOR_v1) -> Self {
        let CUDA_ARRAY3D_DESCRIPTOR_v1 { width, height, depth, format, channels, flags } = narrow;
        Self { width: width as usize, height: height as usize, depth: depth as usize, format, channels, flags }
    }
}

/// # Safety
/// `array` is null or valid for a write, and `ask` writes a handle where it is told to if it succeeds.
unsafe fn create_for(
    kind: Kind,
    array: *mut CUarray,
    bytes: Option<u64>,
    ask: impl FnOnce(*mut CUarray) -> CUresult,
) -> CUresult {
    let Some(bytes) = bytes.filter(|_| !array.is_null()) else { return ask(array) };
    let mut given = ptr::null_mut();
    let result = held(kind, pages::of_array(bytes), || (ask(&raw mut given), given.addr() as u64));
    if result == SUCCESS {
        // SAFETY: the caller's guarantee.
        unsafe { *array = given };
    }
    result
}

/// What an array of so many levels takes; more than there can be if its size is no size.
fn bytes(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) -> u64 {
    if descriptor.flags & (ARRAY_SPARSE | ARRAY_DEFERRED) != 0 {
        return 0;
    }
    // No array has more levels than its lengths have bits.
    let levels = (0..levels.clamp(1, 64)).map(|level| level_bytes(descriptor, level));
    let sum = levels.fold(0_u64, u64::saturating_add);
    sum.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

fn level_bytes(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, level: c_uint) -> u64 {
    let length = |full: usize| ((full as u64).checked_shr(level).unwrap_or(0)).max(1);
    let row = length(descriptor.width).saturating_mul(element_bytes(descriptor.format, descriptor.channels));
    let row = row.checked_next_multiple_of(TILE_BYTES).unwrap_or(u64::MAX);
    let rows = length(descriptor.height).checked_next_multiple_of(TILE_ROWS).unwrap_or(u64::MAX);
    row.saturating_mul(rows).saturating_mul(length(descriptor.depth))
}

/// `CUarray_format`: the widest where it isn't known. Block-compressed formats take a byte for an element or half of one.
fn element_bytes(format: c_uint, channels: c_uint) -> u64 {
    let channel = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        0x91..=0x9e => return 1,
        _ => 8,
    };
    channel * u64::from(channels.clamp(1, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(width: usize, height: usize, depth: usize) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR { width, height, depth, format: 0x20, channels: 4, flags: 0 }
    }

    #[test]
    fn an_array_takes_whole_tiles_and_blocks() {
        assert_eq!(bytes(&descriptor(1, 0, 0), 1), BLOCK);
        assert_eq!(bytes(&descriptor(1024, 1024, 0), 1), 16 << 20);
        assert_eq!(bytes(&descriptor(1021, 1017, 3), 1), 3 * (16 << 20));
        assert_eq!(bytes(&descriptor(1024, 1024, 0), 2), 20 << 20);
        assert_eq!(bytes(&CUDA_ARRAY3D_DESCRIPTOR { flags: ARRAY_SPARSE, ..descriptor(1024, 1024, 0) }, 1), 0);
    }

    #[test]
    fn array_size_never_overflows() {
        for (width, levels) in [(usize::MAX, 1), (usize::MAX / 16, 64), (1, c_uint::MAX)] {
            let _any = bytes(&descriptor(width, usize::MAX, usize::MAX), levels);
            assert_eq!(bytes(&descriptor(width, usize::MAX, usize::MAX), levels), u64::MAX);
        }
    }
}
