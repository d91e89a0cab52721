//! The hooks: the one list of the driver's functions that this library replaces.
//!
//! A line is the driver's function by its exact name, its arguments (`cuda.h`, `nvml.h`), and the function of this library that is
//! called with the driver's own and the same arguments. Revisions and variants of a function have lines of their own, as
//! they have functions of their own. Before a function of CUDA is the version that it came with (`cudaTypedefs.h`).

#[cfg_attr(target_arch = "aarch64", path = "hooks/entry/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "hooks/entry/x86_64.rs")]
mod entry;
mod library;
mod resolver;
mod waits;

use core::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use crate::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1,
    CUDA_LAUNCH_PARAMS, CUarray, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec,
    CUgraphNode, CUgreenCtx, CUipcMemHandle, CUlaunchConfig, CUmemAllocationProp, CUmemGenericAllocationHandle,
    CUmemLocation, CUmemoryPool, CUmipmappedArray, CUstream, ERROR_NOT_FOUND,
};
use crate::driver::{self, NVML_ERROR_FUNCTION_NOT_FOUND, Signature, name, nvmlDevice_t};
use crate::nvml::memory::{nvmlMemory_t, nvmlMemory_v2_t};
use crate::nvml::processes::{nvmlProcessInfo_t, nvmlProcessInfo_v1_t};
use crate::pace::end;
use crate::pace::launch::{self, PER_THREAD, SHARED};
use crate::pace::moves::{self, ANYWHERE, WITHIN};
use crate::{memory, nvml, process};
use library::{Hook, Library};

macro_rules! hooks {
    (
        $library:ident: $count:ident, $enumeration:ident, $signatures:ident, of $file:literal, calls $called:ident, absent $absent:ident;
        $( $($since:literal)? $name:ident ( $($argument:ident : $type:ty),* ) = $body:path; )*
    ) => {
        /// What is hooked, by number.
        #[allow(non_camel_case_types, reason = "the driver's names")]
        #[derive(Clone, Copy, Debug)]
        #[repr(usize)]
        pub(crate) enum $enumeration { $( $name ),* }

        const $count: usize = [ $( stringify!($name) ),* ].len();

        const $signatures: &[Signature] = &[ $( (stringify!($name), &[ $( size_of::<$type>() ),* ]) ),* ];

        static $library: Library<$count, { driver::$called::COUNT }> = Library::new($file, &driver::$called::CALLED, [
            $( Hook {
                name: name!($name),
                since: [$($since,)? 0][0],
                address: || $name as *const () as usize,
            } ),*
        ]);

        $(
            /// The driver's function of this name, held to the container's limits.
            ///
            /// # Safety
            /// As the driver's.
            #[cfg_attr(panic = "abort", unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                let Some(real) = $library.real($enumeration::$name as usize) else { return $absent };
                // SAFETY: it is the address of the driver's function of this name, which has these arguments.
                let real = unsafe {
                    core::mem::transmute::<*const (), unsafe extern "C" fn($($type),*) -> c_int>(
                        core::ptr::with_exposed_provenance(real),
                    )
                };
                // SAFETY: the caller's guarantee.
                unsafe { $body(real, $($argument),*) }
            }
        )*
    };
}

hooks! {
    CUDA: CUDA_HOOKS, Cuda, CUDA_HOOKED, of c"libcuda.so.1", calls cuda, absent ERROR_NOT_FOUND;

    // Entry
    2000 cuInit(flags: c_uint) = process::init;
    11030 cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64) = resolver::resolve;
    12000 cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int) = resolver::resolve_v2;

    // Launches
    4000 cuLaunchKernel(f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void) = launch::kernel::<SHARED>;
    7000 cuLaunchKernel_ptsz(f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void) = launch::kernel::<PER_THREAD>;
    11060 cuLaunchKernelEx(config: *const CUlaunchConfig, f: CUfunction, arguments: *mut *mut c_void, extra: *mut *mut c_void) = launch::extended::<SHARED>;
    11060 cuLaunchKernelEx_ptsz(config: *const CUlaunchConfig, f: CUfunction, arguments: *mut *mut c_void, extra: *mut *mut c_void) = launch::extended::<PER_THREAD>;
    9000 cuLaunchCooperativeKernel(f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void) = launch::cooperative::<SHARED>;
    9000 cuLaunchCooperativeKernel_ptsz(f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void) = launch::cooperative::<PER_THREAD>;
    9000 cuLaunchCooperativeKernelMultiDevice(launches: *mut CUDA_LAUNCH_PARAMS, count: c_uint, flags: c_uint) = launch::on_many;
    10000 cuGraphLaunch(exec: CUgraphExec, stream: CUstream) = memory::graphs::launch::<SHARED>;
    10000 cuGraphLaunch_ptsz(exec: CUgraphExec, stream: CUstream) = memory::graphs::launch::<PER_THREAD>;
    2000 cuLaunch(f: CUfunction) = launch::single;
    2000 cuLaunchGrid(f: CUfunction, width: c_int, height: c_int) = launch::grid;
    2000 cuLaunchGridAsync(f: CUfunction, width: c_int, height: c_int, stream: CUstream) = launch::grid_async::<SHARED>;

    // Memsets, and copies within a card
    3020 cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize) = moves::fill::<c_uchar, SHARED>;
    7000 cuMemsetD8_v2_ptds(to: CUdeviceptr, value: c_uchar, count: usize) = moves::fill::<c_uchar, PER_THREAD>;
    3020 cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) = moves::fill_async::<c_uchar, SHARED>;
    7000 cuMemsetD8Async_ptsz(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) = moves::fill_async::<c_uchar, PER_THREAD>;
    3020 cuMemsetD2D8_v2(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize) = moves::fill_rows::<c_uchar, SHARED>;
    7000 cuMemsetD2D8_v2_ptds(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize) = moves::fill_rows::<c_uchar, PER_THREAD>;
    3020 cuMemsetD2D8Async(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream) = moves::fill_rows_async::<c_uchar, SHARED>;
    7000 cuMemsetD2D8Async_ptsz(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream) = moves::fill_rows_async::<c_uchar, PER_THREAD>;
    3020 cuMemsetD16_v2(to: CUdeviceptr, value: c_ushort, count: usize) = moves::fill::<c_ushort, SHARED>;
    7000 cuMemsetD16_v2_ptds(to: CUdeviceptr, value: c_ushort, count: usize) = moves::fill::<c_ushort, PER_THREAD>;
    3020 cuMemsetD16Async(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) = moves::fill_async::<c_ushort, SHARED>;
    7000 cuMemsetD16Async_ptsz(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) = moves::fill_async::<c_ushort, PER_THREAD>;
    3020 cuMemsetD2D16_v2(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize) = moves::fill_rows::<c_ushort, SHARED>;
    7000 cuMemsetD2D16_v2_ptds(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize) = moves::fill_rows::<c_ushort, PER_THREAD>;
    3020 cuMemsetD2D16Async(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream) = moves::fill_rows_async::<c_ushort, SHARED>;
    7000 cuMemsetD2D16Async_ptsz(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream) = moves::fill_rows_async::<c_ushort, PER_THREAD>;
    3020 cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize) = moves::fill::<c_uint, SHARED>;
    7000 cuMemsetD32_v2_ptds(to: CUdeviceptr, value: c_uint, count: usize) = moves::fill::<c_uint, PER_THREAD>;
    3020 cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) = moves::fill_async::<c_uint, SHARED>;
    7000 cuMemsetD32Async_ptsz(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) = moves::fill_async::<c_uint, PER_THREAD>;
    3020 cuMemsetD2D32_v2(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize) = moves::fill_rows::<c_uint, SHARED>;
    7000 cuMemsetD2D32_v2_ptds(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize) = moves::fill_rows::<c_uint, PER_THREAD>;
    3020 cuMemsetD2D32Async(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream) = moves::fill_rows_async::<c_uint, SHARED>;
    7000 cuMemsetD2D32Async_ptsz(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream) = moves::fill_rows_async::<c_uint, PER_THREAD>;
    3020 cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) = moves::copy::<WITHIN, SHARED>;
    7000 cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) = moves::copy::<WITHIN, PER_THREAD>;
    4000 cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) = moves::copy::<ANYWHERE, SHARED>;
    7000 cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) = moves::copy::<ANYWHERE, PER_THREAD>;
    3020 cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) = moves::copy_async::<WITHIN, SHARED>;
    7000 cuMemcpyDtoDAsync_v2_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) = moves::copy_async::<WITHIN, PER_THREAD>;
    4000 cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) = moves::copy_async::<ANYWHERE, SHARED>;
    7000 cuMemcpyAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) = moves::copy_async::<ANYWHERE, PER_THREAD>;

    // Where launched work ends
    2000 cuStreamSynchronize(stream: CUstream) = waits::stream::<SHARED>;
    7000 cuStreamSynchronize_ptsz(stream: CUstream) = waits::stream::<PER_THREAD>;
    2000 cuEventSynchronize(event: CUevent) = waits::event;
    2000 cuCtxSynchronize() = waits::context;
    13000 cuCtxSynchronize_v2(context: CUcontext) = waits::context_v2;
    2000 cuStreamDestroy(stream: CUstream) = end::stream;
    4000 cuStreamDestroy_v2(stream: CUstream) = end::stream;

    // Contexts
    2000 cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) = memory::contexts::create;
    3020 cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) = memory::contexts::create;
    11040 cuCtxCreate_v3(context: *mut CUcontext, affinities: *mut c_void, count: c_int, flags: c_uint, device: CUdevice) = memory::contexts::create_with_affinity;
    12050 cuCtxCreate_v4(context: *mut CUcontext, parameters: *mut c_void, flags: c_uint, device: CUdevice) = memory::contexts::create_with_parameters;
    2000 cuCtxAttach(context: *mut CUcontext, flags: c_uint) = memory::contexts::attach;
    2000 cuCtxDestroy(context: CUcontext) = memory::contexts::destroy;
    4000 cuCtxDestroy_v2(context: CUcontext) = memory::contexts::destroy;
    2000 cuCtxDetach(context: CUcontext) = memory::contexts::detach;
    7000 cuDevicePrimaryCtxRelease(device: CUdevice) = memory::contexts::release_primary;
    11000 cuDevicePrimaryCtxRelease_v2(device: CUdevice) = memory::contexts::release_primary;
    7000 cuDevicePrimaryCtxReset(device: CUdevice) = memory::contexts::reset_primary;
    11000 cuDevicePrimaryCtxReset_v2(device: CUdevice) = memory::contexts::reset_primary;
    7000 cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) = memory::contexts::retain_primary;

    // Green contexts, of which each has its card's primary context
    12040 cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx) = memory::green::context;
    12040 cuGreenCtxCreate(green: *mut CUgreenCtx, resources: *mut c_void, device: CUdevice, flags: c_uint) = memory::green::create;
    12040 cuGreenCtxDestroy(green: CUgreenCtx) = memory::green::destroy;

    // Memory by address
    2000 cuMemAlloc(address: *mut c_uint, bytes: c_uint) = memory::allocations::allocate_32;
    6000 cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) = memory::allocations::allocate_managed;
    2000 cuMemAllocPitch(address: *mut c_uint, pitch: *mut c_uint, width: c_uint, height: c_uint, element: c_uint) = memory::allocations::allocate_pitch_32;
    3020 cuMemAllocPitch_v2(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint) = memory::allocations::allocate_pitch;
    3020 cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) = memory::allocations::allocate;
    2000 cuMemFree(address: c_uint) = memory::allocations::free_32;
    11020 cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) = memory::allocations::free_async::<false>;
    11020 cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) = memory::allocations::free_async::<true>;
    3020 cuMemFree_v2(address: CUdeviceptr) = memory::allocations::free;

    // Memory of other processes
    4010 cuIpcCloseMemHandle(address: CUdeviceptr) = memory::imports::close_handle;
    4010 cuIpcOpenMemHandle(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) = memory::imports::open_handle;
    11000 cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) = memory::imports::open_handle;

    // Pools
    11020 cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) = memory::pools::allocate::<false>;
    11020 cuMemAllocAsync_ptsz(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) = memory::pools::allocate::<true>;
    11020 cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) = memory::pools::allocate_from::<false>;
    11020 cuMemAllocFromPoolAsync_ptsz(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) = memory::pools::allocate_from::<true>;
    13000 cuMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_int) = memory::pools::of_location;
    13000 cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: c_int) = memory::pools::of_location;
    11020 cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemAllocationProp) = memory::pools::create;
    11020 cuMemPoolDestroy(pool: CUmemoryPool) = memory::pools::destroy;
    11020 cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) = memory::pools::trim;

    // Physical memory
    10020 cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: c_ulonglong) = memory::physical::create;
    10020 cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shared: *mut c_void, kind: c_int) = memory::physical::import;
    10020 cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong) = memory::physical::map;
    10020 cuMemRelease(handle: CUmemGenericAllocationHandle) = memory::physical::release_handle;
    11000 cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void) = memory::physical::retain;
    10020 cuMemUnmap(address: CUdeviceptr, bytes: usize) = memory::physical::unmap;

    // Arrays
    2000 cuArray3DCreate(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v1) = memory::arrays::create;
    3020 cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) = memory::arrays::create;
    2000 cuArrayCreate(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR_v1) = memory::arrays::create;
    3020 cuArrayCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) = memory::arrays::create;
    2000 cuArrayDestroy(array: CUarray) = memory::arrays::destroy;
    5000 cuMipmappedArrayCreate(array: *mut CUmipmappedArray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) = memory::arrays::create_mipmapped;
    5000 cuMipmappedArrayDestroy(array: CUmipmappedArray) = memory::arrays::destroy_mipmapped;

    // Memory of graphs
    11040 cuDeviceGraphMemTrim(device: CUdevice) = memory::graphs::trim;
    10000 cuGraphExecDestroy(exec: CUgraphExec) = memory::graphs::destroy;
    10000 cuGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, length: usize) = memory::graphs::instantiate_with_log;
    11040 cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) = memory::graphs::instantiate;
    12000 cuGraphInstantiateWithParams(exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut c_void) = memory::graphs::instantiate_with_parameters;
    12000 cuGraphInstantiateWithParams_ptsz(exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut c_void) = memory::graphs::instantiate_with_parameters;
    11000 cuGraphInstantiate_v2(exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, length: usize) = memory::graphs::instantiate_with_log;
    11010 cuGraphUpload(exec: CUgraphExec, stream: CUstream) = memory::graphs::upload;
    11010 cuGraphUpload_ptsz(exec: CUgraphExec, stream: CUstream) = memory::graphs::upload;

    // What is shown
    2000 cuDeviceTotalMem(bytes: *mut c_uint, device: CUdevice) = memory::reported::total;
    3020 cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) = memory::reported::total;
    2000 cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) = memory::reported::info;
    3020 cuMemGetInfo_v2(free: *mut usize, total: *mut usize) = memory::reported::info;
}

hooks! {
    NVML: NVML_HOOKS, Nvml, NVML_HOOKED, of c"libnvidia-ml.so.1", calls nvml, absent NVML_ERROR_FUNCTION_NOT_FOUND;

    // Which cards there are
    nvmlDeviceGetCount(count: *mut c_uint) = nvml::devices::count;
    nvmlDeviceGetCount_v2(count: *mut c_uint) = nvml::devices::count;
    nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut nvmlDevice_t) = nvml::devices::handle_by_index;
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) = nvml::devices::handle_by_index;
    nvmlDeviceGetHandleByPciBusId(name: *const c_char, device: *mut nvmlDevice_t) = nvml::devices::handle_by_name;
    nvmlDeviceGetHandleByPciBusId_v2(name: *const c_char, device: *mut nvmlDevice_t) = nvml::devices::handle_by_name;
    nvmlDeviceGetHandleBySerial(name: *const c_char, device: *mut nvmlDevice_t) = nvml::devices::handle_by_name;
    nvmlDeviceGetHandleByUUID(name: *const c_char, device: *mut nvmlDevice_t) = nvml::devices::handle_by_name;
    nvmlDeviceGetMigDeviceHandleByIndex(device: nvmlDevice_t, index: c_uint, instance: *mut nvmlDevice_t) = nvml::devices::instance_by_index;

    // What is shown
    nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) = nvml::memory::info;
    nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) = nvml::memory::info_v2;

    // Who is on a card
    nvmlDeviceGetComputeRunningProcesses(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) = nvml::processes::compute;
    nvmlDeviceGetComputeRunningProcesses_v2(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) = nvml::processes::compute_v3;
    nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) = nvml::processes::compute_v3;
    nvmlDeviceGetGraphicsRunningProcesses(device: nvmlDevice_t, count: *mut c_uint) = nvml::processes::none;
    nvmlDeviceGetGraphicsRunningProcesses_v2(device: nvmlDevice_t, count: *mut c_uint) = nvml::processes::none;
    nvmlDeviceGetGraphicsRunningProcesses_v3(device: nvmlDevice_t, count: *mut c_uint) = nvml::processes::none;
    nvmlDeviceGetMPSComputeRunningProcesses(device: nvmlDevice_t, count: *mut c_uint) = nvml::processes::none;
    nvmlDeviceGetMPSComputeRunningProcesses_v2(device: nvmlDevice_t, count: *mut c_uint) = nvml::processes::none;
    nvmlDeviceGetMPSComputeRunningProcesses_v3(device: nvmlDevice_t, count: *mut c_uint) = nvml::processes::none;
    nvmlDeviceGetAccountingPids() = nvml::unseen;
    nvmlDeviceGetAccountingStats() = nvml::unseen;
    nvmlDeviceGetProcessUtilization() = nvml::unseen;
    nvmlDeviceGetProcessesUtilizationInfo() = nvml::unseen;
    nvmlDeviceGetRunningProcessDetailList() = nvml::unseen;

    // What would change a card for others
    nvmlDeviceSetComputeMode() = nvml::denied;
    nvmlDeviceSetPersistenceMode() = nvml::denied;
    nvmlDeviceSetMigMode() = nvml::denied;
    nvmlDeviceSetEccMode() = nvml::denied;
    nvmlDeviceClearEccErrorCounts() = nvml::denied;
    nvmlDeviceSetGpuLockedClocks() = nvml::denied;
    nvmlDeviceResetGpuLockedClocks() = nvml::denied;
    nvmlDeviceSetMemoryLockedClocks() = nvml::denied;
    nvmlDeviceResetMemoryLockedClocks() = nvml::denied;
    nvmlDeviceSetApplicationsClocks() = nvml::denied;
    nvmlDeviceResetApplicationsClocks() = nvml::denied;
    nvmlDeviceSetClockOffsets() = nvml::denied;
    nvmlDeviceSetGpcClkVfOffset() = nvml::denied;
    nvmlDeviceSetMemClkVfOffset() = nvml::denied;
    nvmlDeviceSetAutoBoostedClocksEnabled() = nvml::denied;
    nvmlDeviceSetDefaultAutoBoostedClocksEnabled() = nvml::denied;
    nvmlDeviceSetPowerManagementLimit() = nvml::denied;
    nvmlDeviceSetPowerManagementLimit_v2() = nvml::denied;
    nvmlDeviceSetPowerMizerMode_v1() = nvml::denied;
    nvmlDeviceSetFanSpeed_v2() = nvml::denied;
    nvmlDeviceSetDefaultFanSpeed_v2() = nvml::denied;
    nvmlDeviceSetFanControlPolicy() = nvml::denied;
    nvmlDeviceSetTemperatureThreshold() = nvml::denied;
    nvmlDeviceSetGpuOperationMode() = nvml::denied;
    nvmlDeviceSetAPIRestriction() = nvml::denied;
    nvmlDeviceSetAccountingMode() = nvml::denied;
    nvmlDeviceClearAccountingPids() = nvml::denied;
    nvmlDeviceSetDriverModel() = nvml::denied;
    nvmlDeviceSetDramEncryptionMode() = nvml::denied;
    nvmlDeviceSetConfComputeUnprotectedMemSize() = nvml::denied;
    nvmlDeviceSetNvLinkUtilizationControl() = nvml::denied;
    nvmlDeviceResetNvLinkErrorCounters() = nvml::denied;
    nvmlDeviceResetNvLinkUtilizationCounter() = nvml::denied;
    nvmlDeviceCreateGpuInstance() = nvml::denied;
    nvmlDeviceCreateGpuInstanceWithPlacement() = nvml::denied;
    nvmlGpuInstanceDestroy() = nvml::denied;
    nvmlGpuInstanceCreateComputeInstance() = nvml::denied;
    nvmlGpuInstanceCreateComputeInstanceWithPlacement() = nvml::denied;
    nvmlComputeInstanceDestroy() = nvml::denied;
}

/// The names of all hooks.
pub fn names() -> impl Iterator<Item = &'static str> {
    CUDA_HOOKED.iter().chain(NVML_HOOKED).map(|(name, _)| *name)
}

/// All functions that are hooked or called. Those whose arguments don't matter are written without any.
pub fn signatures() -> impl Iterator<Item = Signature> {
    [CUDA_HOOKED, driver::CUDA_CALLED, NVML_HOOKED, driver::NVML_CALLED].into_iter().flatten().copied()
}

#[cfg(test)]
mod tests;
