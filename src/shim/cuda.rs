//! The types and constants of CUDA's driver API that are used here, by the names of `cuda.h`.

use core::ffi::{c_int, c_uint, c_void};

pub(crate) type CUresult = c_int;
/// A card's ordinal.
pub(crate) type CUdevice = c_int;
pub(crate) type CUdeviceptr = u64;
pub(crate) type CUcontext = *mut c_void;
pub(crate) type CUgreenCtx = *mut c_void;
pub(crate) type CUstream = *mut c_void;
pub(crate) type CUevent = *mut c_void;
pub(crate) type CUfunction = *mut c_void;
pub(crate) type CUgraphExec = *mut c_void;

pub(crate) const SUCCESS: CUresult = 0;
pub(crate) const ERROR_OUT_OF_MEMORY: CUresult = 2;
pub(crate) const ERROR_DEINITIALIZED: CUresult = 4;
pub(crate) const ERROR_NOT_FOUND: CUresult = 500;
/// Not yet.
pub(crate) const ERROR_NOT_READY: CUresult = 600;
/// A capture of another stream would be disturbed.
pub(crate) const ERROR_STREAM_CAPTURE_IMPLICIT: CUresult = 906;
/// "The attempted operation is not permitted."
pub(crate) const ERROR_NOT_PERMITTED: CUresult = 800;

/// 16 bytes that tell cards apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CUuuid(pub(crate) [u8; 16]);

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

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, and `CU_MEMORYTYPE_DEVICE`, which it may be.
pub(crate) const POINTER_MEMORY_TYPE: c_int = 2;
pub(crate) const MEMORY_TYPE_DEVICE: c_uint = 2;

/// `CU_STREAM_CAPTURE_STATUS_NONE`
pub(crate) const CAPTURE_NONE: c_int = 0;
/// `CU_EVENT_DEFAULT`
pub(crate) const EVENT_DEFAULT: c_uint = 0;

pub(crate) type CUmemoryPool = *mut c_void;
pub(crate) type CUarray = *mut c_void;
pub(crate) type CUmipmappedArray = *mut c_void;
pub(crate) type CUgraph = *mut c_void;
pub(crate) type CUgraphNode = *mut c_void;
pub(crate) type CUmemGenericAllocationHandle = u64;

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`: default streams that are named, as null is one that depends on the caller.
pub(crate) const STREAM_LEGACY: usize = 1;
pub(crate) const STREAM_PER_THREAD: usize = 2;

/// `CU_MEM_LOCATION_TYPE_DEVICE`; all others are the host's.
pub(crate) const LOCATION_DEVICE: c_uint = 1;

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT` and `…_USED_MEM_CURRENT`, both of 64 bits.
pub(crate) const POOL_RESERVED: c_int = 5;
pub(crate) const POOL_USED: c_int = 7;

/// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`, of 64 bits.
pub(crate) const GRAPH_RESERVED: c_int = 2;

/// `CU_GRAPH_NODE_TYPE_GRAPH`, `…_MEM_ALLOC` and `…_MEM_FREE`.
pub(crate) const NODE_GRAPH: c_int = 4;
pub(crate) const NODE_ALLOCATION: c_int = 10;
pub(crate) const NODE_FREE: c_int = 11;

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: the array has no memory until some is mapped to it.
pub(crate) const ARRAY_SPARSE: c_uint = 0x40;
pub(crate) const ARRAY_DEFERRED: c_uint = 0x80;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CUmemLocation {
    pub(crate) kind: c_uint,
    /// An ordinal, where the kind has some.
    pub(crate) id: c_int,
}

/// The beginning of it, which is also that of `CUmemPoolProps`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CUmemAllocationProp {
    kind: c_uint,
    handle_types: c_uint,
    pub(crate) location: CUmemLocation,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    pub(crate) pool: CUmemAllocationProp,
    rest_of_pool: [u64; 9],
    access: [u64; 2],
    pub(crate) bytes: usize,
    pub(crate) address: CUdeviceptr,
    /// What later versions may add.
    spare: [u64; 8],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_ARRAY_DESCRIPTOR {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_ARRAY3D_DESCRIPTOR {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
    pub(crate) flags: c_uint,
}

/// `CUDA_ARRAY_DESCRIPTOR_v1`, of programs with 32-bit addresses.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_ARRAY_DESCRIPTOR_v1 {
    pub(crate) width: c_uint,
    pub(crate) height: c_uint,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v1`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
    pub(crate) width: c_uint,
    pub(crate) height: c_uint,
    pub(crate) depth: c_uint,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
    pub(crate) flags: c_uint,
}

/// All of it, and what later versions may add: where the driver writes one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CUmemAllocationPropWhole {
    pub(crate) head: CUmemAllocationProp,
    rest: [u64; 10],
}

/// What one process gives to another for it to open memory of the first.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUipcMemHandle([u8; 64]);

// === impl CUmemLocation ===

impl CUmemLocation {
    pub(crate) fn of_device(device: CUdevice) -> Self {
        Self { kind: LOCATION_DEVICE, id: device }
    }

    /// The card; `None`: it is the host.
    pub(crate) fn device(self) -> Option<CUdevice> {
        (self.kind == LOCATION_DEVICE).then_some(self.id)
    }
}

// === impl CUDA_MEM_ALLOC_NODE_PARAMS ===

impl CUDA_MEM_ALLOC_NODE_PARAMS {
    pub(crate) const NOTHING: Self = Self {
        pool: CUmemAllocationProp { kind: 0, handle_types: 0, location: CUmemLocation { kind: 0, id: 0 } },
        rest_of_pool: [0; 9],
        access: [0; 2],
        bytes: 0,
        address: 0,
        spare: [0; 8],
    };
}
