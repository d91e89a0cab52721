//! Structures of CUDA's that we read. Enumerations are numbers, handles too.

use std::ffi::{c_int, c_uint, c_void};

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

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct LaunchConfig {
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared: c_uint,
    pub(super) stream: usize,
    pub(super) attributes: usize,
    pub(super) attribute_count: c_uint,
}

/// `CUDA_LAUNCH_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct LaunchParameters {
    pub(super) function: usize,
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared: c_uint,
    pub(super) stream: usize,
    pub(super) arguments: usize,
}

/// `CUDA_KERNEL_NODE_PARAMS`, and the beginning of its second form.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelParameters {
    pub(super) function: usize,
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared: c_uint,
    pub(super) arguments: usize,
    pub(super) extra: usize,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelParameters2 {
    pub(super) first: KernelParameters,
    pub(super) kernel: usize,
    pub(super) context: usize,
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

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FillParameters {
    pub(super) to: u64,
    pub(super) pitch: usize,
    pub(super) value: c_uint,
    pub(super) element: c_uint,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct HostParameters {
    pub(super) function: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(super) data: usize,
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

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ArrayRequirements {
    pub(super) size: usize,
    pub(super) alignment: usize,
    pub(super) reserved: [c_uint; 4],
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

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IpcHandle(pub(super) [u8; 64]);

// === impl IpcHandle ===

impl IpcHandle {
    pub(super) fn from_words(words: [u64; 8]) -> Self {
        let mut bytes = [0; 64];
        for (byte, value) in bytes.iter_mut().zip(words.into_iter().flat_map(u64::to_le_bytes)) {
            *byte = value;
        }
        Self(bytes)
    }

    pub(super) fn words(&self) -> [u64; 8] {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(self.0.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        words
    }
}
