//! The functions, each with its arguments as `cuda.h` has them.

use std::ffi::{OsStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::mem::ManuallyDrop;

#[allow(clippy::wildcard_imports, reason = "the types of all functions below")]
use cudarc::driver::sys::*;
use libloading::Library;

use crate::{Code, NOT_FOUND, NarrowArray, NarrowArray3d};

macro_rules! functions {
    (bound: { $($bound:tt)* } unbound: { $($unbound:tt)* }) => {
        methods! { $($bound)* $($unbound)* }
        check! { $($bound)* }
    };
}

macro_rules! methods {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        /// A driver library, loaded for good. A function that it lacks answers [`NOT_FOUND`].
        #[allow(non_snake_case, reason = "CUDA's names")]
        pub struct Cuda {
            pub(crate) library: ManuallyDrop<Library>,
            $($name: Option<unsafe extern "C" fn($($type),*) -> Code>,)*
        }

        impl Cuda {
            /// Loads a library, by its path or as the dynamic linker finds it.
            pub fn load(path: impl AsRef<OsStr>) -> Result<Self, libloading::Error> {
                // SAFETY: drivers, and the stand-in for one, may be loaded at any time.
                let library = ManuallyDrop::new(unsafe { Library::new(path.as_ref()) }?);
                // SAFETY: the functions of these names have these arguments.
                $(let $name = unsafe { library.get(concat!(stringify!($name), "\0")) }.ok().map(|found| *found);)*
                Ok(Self { library, $($name),* })
            }

            $(
                #[doc = concat!("Calls `", stringify!($name), "`.")]
                pub fn $name(&self, $($argument: $type),*) -> Code {
                    // SAFETY: callers give pointers that are valid, and handles that the driver has given out.
                    self.$name.map_or(NOT_FOUND, |function| unsafe { function($($argument),*) })
                }
            )*
        }
    };
}

/// Compares the arguments with those of cudarc's bindings, at compile time.
macro_rules! check {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(const _: unsafe fn($($type),*) -> CUresult = cudarc::driver::sys::$name;)*
    };
}

functions! {
    bound: {
        cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR);
        cuArrayCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR);
        cuArrayDestroy(array: CUarray);
        cuCtxAttach(context: *mut CUcontext, flags: c_uint);
        cuCtxDestroy_v2(context: CUcontext);
        cuCtxDetach(context: CUcontext);
        cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx);
        cuCtxSetCurrent(context: CUcontext);
        cuCtxSynchronize();
        cuDeviceGet(device: *mut CUdevice, number: c_int);
        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
        cuDeviceGetGraphMemAttribute(device: CUdevice, number: CUgraphMem_attribute, value: *mut c_void);
        cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
        cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
        cuDeviceGraphMemTrim(device: CUdevice);
        cuDevicePrimaryCtxRelease_v2(device: CUdevice);
        cuDevicePrimaryCtxReset_v2(device: CUdevice);
        cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        cuDriverGetVersion(version: *mut c_int);
        cuEventCreate(event: *mut CUevent, flags: c_uint);
        cuEventQuery(event: CUevent);
        cuEventRecord(event: CUevent, stream: CUstream);
        cuEventSynchronize(event: CUevent);
        cuGetProcAddress_v2(
            name: *const c_char, found: *mut *mut c_void, version: c_int, flags: cuuint64_t,
            status: *mut CUdriverProcAddressQueryResult
        );
        cuGraphAddMemAllocNode(
            node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
            given: *mut CUDA_MEM_ALLOC_NODE_PARAMS
        );
        cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
        cuGraphDestroy(graph: CUgraph);
        cuGraphExecDestroy(exec: CUgraphExec);
        cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
        cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
        cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
        cuGraphUpload(exec: CUgraphExec, stream: CUstream);
        cuGreenCtxCreate(green: *mut CUgreenCtx, resources: CUdevResourceDesc, device: CUdevice, flags: c_uint);
        cuGreenCtxDestroy(green: CUgreenCtx);
        cuInit(flags: c_uint);
        cuIpcCloseMemHandle(address: CUdeviceptr);
        cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr);
        cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint);
        cuLaunch(function: CUfunction);
        cuLaunchCooperativeKernel(
            function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void
        );
        cuLaunchCooperativeKernelMultiDevice(launches: *mut CUDA_LAUNCH_PARAMS, count: c_uint, flags: c_uint);
        cuLaunchGrid(function: CUfunction, width: c_int, height: c_int);
        cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream);
        cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);
        cuLaunchKernel(
            function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void
        );
        cuLaunchKernelEx(
            config: *const CUlaunchConfig, function: CUfunction, arguments: *mut *mut c_void, extra: *mut *mut c_void
        );
        cuMemAddressFree(address: CUdeviceptr, size: usize);
        cuMemAddressReserve(
            address: *mut CUdeviceptr, size: usize, alignment: usize, wanted: CUdeviceptr, flags: c_ulonglong
        );
        cuMemAdvise_v2(address: CUdeviceptr, size: usize, advice: CUmem_advise, location: CUmemLocation);
        cuMemAllocAsync(address: *mut CUdeviceptr, size: usize, stream: CUstream);
        cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, size: usize, pool: CUmemoryPool, stream: CUstream);
        cuMemAllocManaged(address: *mut CUdeviceptr, size: usize, flags: c_uint);
        cuMemAllocPitch_v2(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint);
        cuMemAlloc_v2(address: *mut CUdeviceptr, size: usize);
        cuMemCreate(
            handle: *mut CUmemGenericAllocationHandle, size: usize, properties: *const CUmemAllocationProp,
            flags: c_ulonglong
        );
        cuMemExportToShareableHandle(
            shared: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType,
            flags: c_ulonglong
        );
        cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
        cuMemFree_v2(address: CUdeviceptr);
        cuMemGetAllocationGranularity(
            size: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags
        );
        cuMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType);
        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemImportFromShareableHandle(
            handle: *mut CUmemGenericAllocationHandle, shared: *mut c_void, kind: CUmemAllocationHandleType
        );
        cuMemMap(
            address: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong
        );
        cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
        cuMemPoolDestroy(pool: CUmemoryPool);
        cuMemPoolGetAttribute(pool: CUmemoryPool, number: CUmemPool_attribute, value: *mut c_void);
        cuMemPoolSetAttribute(pool: CUmemoryPool, number: CUmemPool_attribute, value: *mut c_void);
        cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
        cuMemPrefetchAsync_v2(
            address: CUdeviceptr, size: usize, location: CUmemLocation, flags: c_uint, stream: CUstream
        );
        cuMemRangeGetAttribute(
            value: *mut c_void, bytes: usize, number: CUmem_range_attribute, address: CUdeviceptr, size: usize
        );
        cuMemRelease(handle: CUmemGenericAllocationHandle);
        cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void);
        cuMemSetAccess(address: CUdeviceptr, size: usize, access: *const CUmemAccessDesc, count: usize);
        cuMemUnmap(address: CUdeviceptr, size: usize);
        cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, length: usize);
        cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, length: usize);
        cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize);
        cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);
        cuMipmappedArrayCreate(
            array: *mut CUmipmappedArray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint
        );
        cuMipmappedArrayDestroy(array: CUmipmappedArray);
        cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
        cuModuleUnload(module: CUmodule);
        cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
        cuStreamCreate(stream: *mut CUstream, flags: c_uint);
        cuStreamDestroy_v2(stream: CUstream);
        cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
        cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus);
        cuStreamQuery(stream: CUstream);
        cuStreamSynchronize(stream: CUstream);
        cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: cuuint32_t, flags: c_uint);
        cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: cuuint32_t, flags: c_uint);
        cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
    }
    // Forms for the per-thread default stream, which `cuda.h` has as macros, and older ones.
    unbound: {
        cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
        cuDeviceTotalMem(bytes: *mut c_uint, device: CUdevice);
        cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
        cuGetProcAddress(name: *const c_char, found: *mut *mut c_void, version: c_int, flags: u64);
        cuGraphLaunch_ptsz(exec: CUgraphExec, stream: CUstream);
        cuIpcOpenMemHandle(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint);
        cuLaunchCooperativeKernel_ptsz(
            function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void
        );
        cuLaunchKernelEx_ptsz(
            config: *const CUlaunchConfig, function: CUfunction, arguments: *mut *mut c_void, extra: *mut *mut c_void
        );
        cuLaunchKernel_ptsz(
            function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void
        );
        cuArray3DCreate(array: *mut CUarray, descriptor: *const NarrowArray3d);
        cuArrayCreate(array: *mut CUarray, descriptor: *const NarrowArray);
        cuMemAlloc(address: *mut c_uint, size: c_uint);
        cuMemAllocPitch(address: *mut c_uint, pitch: *mut c_uint, width: c_uint, height: c_uint, element: c_uint);
        cuMemGetInfo(free: *mut c_uint, total: *mut c_uint);
    }
}
