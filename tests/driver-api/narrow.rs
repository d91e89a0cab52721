//! What programs with 32-bit addresses give the driver, which cudarc's bindings leave out.

use std::ffi::c_uint;

/// `CUDA_ARRAY_DESCRIPTOR_v1`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "as cuda.h has them")]
pub struct NarrowArray {
    pub width: c_uint,
    pub height: c_uint,
    pub format: c_uint,
    pub channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v1`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "as cuda.h has them")]
pub struct NarrowArray3d {
    pub width: c_uint,
    pub height: c_uint,
    pub depth: c_uint,
    pub format: c_uint,
    pub channels: c_uint,
    pub flags: c_uint,
}
