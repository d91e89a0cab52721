//! The driver's functions that this library calls. Their addresses become known when the first hook is called.

mod addresses;

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::cuda::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUcontext, CUdevice, CUdeviceptr, CUevent, CUgraph, CUgraphNode,
    CUmemAllocationPropWhole, CUmemGenericAllocationHandle, CUmemLocation, CUmemoryPool, CUstream, CUuuid,
    ERROR_NOT_FOUND, SUCCESS,
};
use crate::linker;

pub(crate) use addresses::Addresses;

/// A function's name, and the bytes of each of its arguments as they are passed on here.
pub type Signature = (&'static str, &'static [usize]);

pub(crate) type nvmlDevice_t = *mut c_void;
pub(crate) type nvmlReturn_t = c_int;

/// The driver lacks the function.
pub(crate) const NVML_ERROR_FUNCTION_NOT_FOUND: nvmlReturn_t = 13;

/// Functions of one library that are called.
pub(crate) struct Called<const N: usize> {
    names: [&'static CStr; N],
    addresses: Addresses<N>,
}

// === impl Called ===

impl<const N: usize> Called<N> {
    const fn new(names: [&'static CStr; N]) -> Self {
        Self { names, addresses: Addresses::new() }
    }

    /// Looks all functions up in a library.
    pub(crate) fn bind(&self, handle: *mut c_void) {
        for (number, name) in self.names.iter().enumerate() {
            self.addresses.learn(number, linker::look_up(handle, name));
        }
    }
}

/// The name of a function, as C has it.
macro_rules! name {
    ($name:ident) => {
        match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name of C"), // when this is compiled
        }
    };
}
pub(crate) use name;

macro_rules! called {
    (
        $(#[$doc:meta])*
        $module:ident: $signatures:ident, absent $absent:ident;
        $( $name:ident ( $($argument:ident : $type:ty),* ); )*
    ) => {
        pub(crate) const $signatures: &[Signature] = &[ $( (stringify!($name), &[ $( size_of::<$type>() ),* ]) ),* ];

        $(#[$doc])*
        pub(crate) mod $module {
            use super::*;

            pub(crate) const COUNT: usize = [ $( stringify!($name) ),* ].len();

            pub(crate) static CALLED: Called<COUNT> = Called::new([ $( name!($name) ),* ]);

            #[allow(non_camel_case_types, reason = "the driver's names")]
            #[repr(usize)]
            enum Number { $( $name ),* }

            $(
                /// # Safety
                /// As the driver's.
                pub(crate) unsafe fn $name($($argument: $type),*) -> c_int {
                    let Some(real) = CALLED.addresses.real(Number::$name as usize) else { return $absent };
                    // SAFETY: it is the address of the driver's function of this name, which has these arguments.
                    let real = unsafe {
                        core::mem::transmute::<*const (), unsafe extern "C" fn($($type),*) -> c_int>(
                            core::ptr::with_exposed_provenance(real),
                        )
                    };
                    // SAFETY: the caller's guarantee.
                    unsafe { real($($argument),*) }
                }
            )*
        }
    };
}

called! {
    /// Functions of CUDA.
    cuda: CUDA_CALLED, absent ERROR_NOT_FOUND;

    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxGetDevice(device: *mut CUdevice);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: c_int, value: *mut c_void);
    cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuDeviceGraphMemTrim(device: CUdevice);
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, is_active: *mut c_int);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventElapsedTime(milliseconds: *mut f32, from: CUevent, to: CUevent);
    cuEventQuery(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
    cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphMemAllocNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
    cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr);
    cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_int);
    cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: c_uint, device: CUdevice);
    cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, advice: c_uint, location: CUmemLocation);
    cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr);
    cuMemGetAllocationPropertiesFromHandle(properties: *mut CUmemAllocationPropWhole, handle: CUmemGenericAllocationHandle);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
    cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: CUdeviceptr);
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    cuStreamGetDevice(stream: CUstream, device: *mut CUdevice);
    cuStreamIsCapturing(stream: CUstream, status: *mut c_int);
    cuStreamQuery(stream: CUstream);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
}

/// The calling thread's context; null if it has none.
pub(crate) fn current_context() -> CUcontext {
    let mut context: CUcontext = core::ptr::null_mut();
    // SAFETY: a context is written to a context.
    match unsafe { cuda::cuCtxGetCurrent(&raw mut context) } {
        SUCCESS => context,
        _ => core::ptr::null_mut(),
    }
}

called! {
    /// Functions of NVML.
    nvml: NVML_CALLED, absent NVML_ERROR_FUNCTION_NOT_FOUND;

    nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, id: *mut c_uint);
    nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint);
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t);
    nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint);
    nvmlDeviceGetMigDeviceHandleByIndex(device: nvmlDevice_t, index: c_uint, instance: *mut nvmlDevice_t);
    nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint);
}
