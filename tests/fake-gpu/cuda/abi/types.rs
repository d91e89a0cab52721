//! Structures of CUDA's that hold enumerations; all others are cudarc's. A program may write any number where `cuda.h` has an
//! enumeration, and a Rust enumeration with a number that it doesn't list is undefined behaviour: here they are numbers.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Location {
    /// 1: a card, 2 to 4: the host.
    pub(super) kind: c_uint,
    pub(super) id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AllocationProperties {
    pub(super) kind: c_uint,
    pub(super) handle_types: c_uint,
    pub(super) location: Location,
    pub(super) win32: usize,
    pub(super) flags: [u8; 8],
}

/// `CUmemPoolProps`, whose reserved bytes begin with the size limit since 12.2.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PoolProperties {
    pub(super) kind: c_uint,
    pub(super) handle_types: c_uint,
    pub(super) location: Location,
    pub(super) win32: usize,
    pub(super) most: usize,
    pub(super) usage: u16,
    pub(super) reserved: [u8; 54],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) location: Location,
    /// 0: none, 1: read, 3: read and write.
    pub(super) flags: c_uint,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AllocationParameters {
    pub(super) pool: PoolProperties,
    pub(super) access: usize,
    pub(super) access_count: usize,
    pub(super) size: usize,
    pub(super) address: u64,
}

/// `CUgraphNodeParams`, whose middle is one of the above.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct NodeParameters {
    pub(super) kind: c_uint,
    pub(super) reserved: [c_int; 3],
    pub(super) body: [u64; 29],
    pub(super) tail: u64,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct InstantiateParameters {
    pub(super) flags: u64,
    pub(super) upload: usize,
    pub(super) failed: usize,
    pub(super) result: c_uint,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ArrayDescriptor {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) format: c_uint,
    pub(super) channels: c_uint,
}

/// `CUDA_ARRAY_DESCRIPTOR_v1`, of programs with 32-bit addresses.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct NarrowArrayDescriptor {
    pub(super) width: c_uint,
    pub(super) height: c_uint,
    pub(super) format: c_uint,
    pub(super) channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v1`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct NarrowArray3dDescriptor {
    pub(super) width: c_uint,
    pub(super) height: c_uint,
    pub(super) depth: c_uint,
    pub(super) format: c_uint,
    pub(super) channels: c_uint,
    pub(super) flags: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Array3dDescriptor {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) depth: usize,
    pub(super) format: c_uint,
    pub(super) channels: c_uint,
    pub(super) flags: c_uint,
}

/// One end of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct End2d {
    pub(super) x: usize,
    pub(super) y: usize,
    /// 1: the host, 2: a card, 3: an array, 4: wherever the address is.
    pub(super) kind: c_uint,
    pub(super) host: usize,
    pub(super) device: u64,
    pub(super) array: usize,
    pub(super) pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Copy2d {
    pub(super) from: End2d,
    pub(super) to: End2d,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// One end of `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct End3d {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) z: usize,
    pub(super) level: usize,
    pub(super) kind: c_uint,
    pub(super) host: usize,
    pub(super) device: u64,
    pub(super) array: usize,
    pub(super) reserved: usize,
    pub(super) pitch: usize,
    pub(super) height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Copy3d {
    pub(super) from: End3d,
    pub(super) to: End3d,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) depth: usize,
}

macro_rules! same_size {
    ($($ours:ident $theirs:ident;)*) => {
        $(const _: () = assert!(size_of::<$ours>() == size_of::<sys::$theirs>());)*
    };
}

same_size! {
    Access CUmemAccessDesc;
    AllocationParameters CUDA_MEM_ALLOC_NODE_PARAMS;
    AllocationProperties CUmemAllocationProp;
    Array3dDescriptor CUDA_ARRAY3D_DESCRIPTOR;
    ArrayDescriptor CUDA_ARRAY_DESCRIPTOR;
    Copy2d CUDA_MEMCPY2D;
    Copy3d CUDA_MEMCPY3D;
    InstantiateParameters CUDA_GRAPH_INSTANTIATE_PARAMS;
    Location CUmemLocation;
    NodeParameters CUgraphNodeParams;
    PoolProperties CUmemPoolProps;
}
