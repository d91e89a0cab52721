//! Arrays and mipmapped arrays.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::CUDA_ARRAY_MEMORY_REQUIREMENTS;

use super::types::{Array3dDescriptor, ArrayDescriptor, NarrowArray3dDescriptor, NarrowArrayDescriptor};
use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::Driver;
use crate::driver::memory::{Array, Shape};

/// What arrays lie at multiples of.
const ALIGNMENT: usize = 64 << 10;

fn shape(array: &Array3dDescriptor) -> Shape {
    let Array3dDescriptor { width, height, depth, format, channels, flags } = *array;
    Shape { width, height, depth, format, channels, flags }
}

/// # Safety
/// `array` is null or valid for writes, `descriptor` null or valid for reads.
unsafe fn create(me: Entry, array: *mut usize, descriptor: Array3dDescriptor, levels: c_uint) -> Result<(), Code> {
    let made = me.unsafe_driver()?.create_array(shape(&descriptor), levels)?;
    // SAFETY: the caller's.
    unsafe { write::value(array, made) }
}

/// # Safety
/// `requirements` is null or valid for writes.
unsafe fn requirements(
    me: Entry,
    requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    array: usize,
    device: c_int,
) -> Result<(), Code> {
    let driver = me.driver()?;
    driver.device(device)?;
    let array = driver.arrays.get(array)?;
    let size = array.shape.size(array.levels).ok_or(Code::INVALID_VALUE)? as usize;
    // SAFETY: the caller's.
    unsafe {
        write::value(requirements, CUDA_ARRAY_MEMORY_REQUIREMENTS { size, alignment: ALIGNMENT, reserved: [0; 4] })
    }
}

fn descriptor(driver: &Driver, array: usize) -> Result<Array3dDescriptor, Code> {
    let Shape { width, height, depth, format, channels, flags } = driver.arrays.get(array)?.shape;
    Ok(Array3dDescriptor { width, height, depth, format, channels, flags })
}

functions! {
    [2000 cuArrayCreate](array: *mut usize, descriptor: *const NarrowArrayDescriptor) = |me| {
        let NarrowArrayDescriptor { width, height, format, channels } = write::read(descriptor)?;
        let (width, height) = (width as usize, height as usize);
        create(me, array, Array3dDescriptor { width, height, depth: 0, format, channels, flags: 0 }, 1)
    };
    [3020 cuArrayCreate_v2](array: *mut usize, descriptor: *const ArrayDescriptor) = |me| {
        let ArrayDescriptor { width, height, format, channels } = write::read(descriptor)?;
        create(me, array, Array3dDescriptor { width, height, depth: 0, format, channels, flags: 0 }, 1)
    };
    [2000 cuArray3DCreate](array: *mut usize, descriptor: *const NarrowArray3dDescriptor) = |me| {
        let NarrowArray3dDescriptor { width, height, depth, format, channels, flags } = write::read(descriptor)?;
        let (width, height, depth) = (width as usize, height as usize, depth as usize);
        create(me, array, Array3dDescriptor { width, height, depth, format, channels, flags }, 1)
    };
    [3020 cuArray3DCreate_v2](array: *mut usize, descriptor: *const Array3dDescriptor) = |me| {
        create(me, array, write::read(descriptor)?, 1)
    };
    [5000 cuMipmappedArrayCreate](array: *mut usize, descriptor: *const Array3dDescriptor, levels: c_uint) = |me| {
        create(me, array, write::read(descriptor)?, levels.max(1))
    };
    [2000 cuArrayDestroy, 5000 cuMipmappedArrayDestroy](array: usize) = |me| me.unsafe_driver()?.destroy_array(array);
    [5000 cuMipmappedArrayGetLevel](level_array: *mut usize, array: usize, level: c_uint) = |me| {
        let mut driver = me.driver()?;
        let whole = driver.arrays.get(array)?;
        if level >= whole.levels {
            return Err(Code::INVALID_VALUE);
        }
        let part = |length: usize| if length == 0 { 0 } else { (length >> level).max(1) };
        let Shape { width, height, depth, .. } = whole.shape;
        let shape = Shape { width: part(width), height: part(height), depth: part(depth), ..whole.shape };
        let below = if level == 0 { 0 } else { whole.shape.size(level).unwrap_or(0) };
        let (context, device) = (whole.context, whole.device);
        let address = whole.address + below.min(whole.shape.size(whole.levels).unwrap_or(0) / 2);
        let made = driver.arrays.add(Array { context, device, shape, levels: 1, address, level_of: Some(array) });
        write::value(level_array, made)
    };
    [3020 cuArrayGetDescriptor_v2](to: *mut ArrayDescriptor, array: usize) = |me| {
        let Array3dDescriptor { width, height, format, channels, .. } = descriptor(&*me.driver()?, array)?;
        write::value(to, ArrayDescriptor { width, height, format, channels })
    };
    [3020 cuArray3DGetDescriptor_v2](to: *mut Array3dDescriptor, array: usize) = |me| {
        write::value(to, descriptor(&*me.driver()?, array)?)
    };
    [11060 cuArrayGetMemoryRequirements, 11060 cuMipmappedArrayGetMemoryRequirements](
        to: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: usize, device: c_int
    ) = |me| requirements(me, to, array, device);
}
