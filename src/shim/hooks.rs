//! The hooks: the one list of the driver's functions that this library replaces.
//!
//! A line is the driver's function by its exact name, its arguments (`cuda.h`, `nvml.h`), and the function of this library that is
//! called with the driver's own and the same arguments. Revisions and variants of a function have lines of their own, as
//! they have functions of their own.

#[cfg_attr(target_arch = "aarch64", path = "hooks/entry/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "hooks/entry/x86_64.rs")]
mod entry;
mod library;
mod resolver;
mod waits;

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUDA_LAUNCH_PARAMS, CUarray, CUcontext, CUdevice, CUdeviceptr,
    CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUgreenCtx, CUipcMemHandle, CUlaunchConfig,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemoryPool, CUmipmappedArray, CUstream, ERROR_NOT_FOUND,
};
use crate::driver::{self, NVML_ERROR_FUNCTION_NOT_FOUND, Signature, name, nvmlDevice_t};
use crate::nvml::memory::{nvmlMemory_t, nvmlMemory_v2_t};
use crate::nvml::processes::{nvmlProcessInfo_t, nvmlProcessInfo_v1_t};
use crate::pace::end;
use crate::pace::launch::{self, PER_THREAD, SHARED};
use crate::{memory, nvml, process};
use library::Library;

macro_rules! hooks {
    (
        $library:ident: $count:ident, $enumeration:ident, $signatures:ident, of $file:literal, calls $called:ident, absent $absent:ident;
        $( $name:ident ( $($argument:ident : $type:ty),* ) = $body:path; )*
    ) => {
        /// What is hooked, by number.
        #[allow(non_camel_case_types, reason = "the driver's names")]
        #[derive(Clone, Copy, Debug)]
        #[repr(usize)]
        pub(crate) enum $enumeration { $( $name ),* }

        const $count: usize = [ $( stringify!($name) ),* ].len();

        const $signatures: &[Signature] = &[ $( (stringify!($name), &[ $( size_of::<$type>() ),* ]) ),* ];

        static $library: Library<$count, { driver::$called::COUNT }> = Library::new($file, &driver::$called::CALLED, [
            $( (
                name!($name),
                || $name as *const () as usize,
            ) ),*
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
    cuInit(flags: c_uint) = process::init;
    cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64) = resolver::resolve;
    cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int) = resolver::resolve_v2;

    // Launches
    cuLaunchKernel(f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void) = launch::kernel::<SHARED>;
    cuLaunchKernel_ptsz(f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void) = launch::kernel::<PER_THREAD>;
    cuLaunchKernelEx(config: *const CUlaunchConfig, f: CUfunction, arguments: *mut *mut c_void, extra: *mut *mut c_void) = launch::extended::<SHARED>;
    cuLaunchKernelEx_ptsz(config: *const CUlaunchConfig, f: CUfunction, arguments: *mut *mut c_void, extra: *mut *mut c_void) = launch::extended::<PER_THREAD>;
    cuLaunchCooperativeKernel(f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void) = launch::cooperative::<SHARED>;
    cuLaunchCooperativeKernel_ptsz(f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void) = launch::cooperative::<PER_THREAD>;
    cuLaunchCooperativeKernelMultiDevice(launches: *mut CUDA_LAUNCH_PARAMS, count: c_uint, flags: c_uint) = launch::on_many;
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream) = launch::graph::<SHARED>;
    cuGraphLaunch_ptsz(exec: CUgraphExec, stream: CUstream) = launch::graph::<PER_THREAD>;
    cuLaunch(f: CUfunction) = launch::single;
    cuLaunchGrid(f: CUfunction, width: c_int, height: c_int) = launch::grid;
    cuLaunchGridAsync(f: CUfunction, width: c_int, height: c_int, stream: CUstream) = launch::grid_async::<SHARED>;

    // Where launched work ends
    cuStreamSynchronize(stream: CUstream) = waits::stream::<SHARED>;
    cuStreamSynchronize_ptsz(stream: CUstream) = waits::stream::<PER_THREAD>;
    cuEventSynchronize(event: CUevent) = waits::event;
    cuCtxSynchronize() = waits::context;
    cuCtxSynchronize_v2(context: CUcontext) = waits::context_v2;
    cuStreamDestroy(stream: CUstream) = end::stream;
    cuStreamDestroy_v2(stream: CUstream) = end::stream;

    // Contexts
    cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) = memory::contexts::create;
    cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) = memory::contexts::create;
    cuCtxCreate_v3(context: *mut CUcontext, affinities: *mut c_void, count: c_int, flags: c_uint, device: CUdevice) = memory::contexts::create_with_affinity;
    cuCtxCreate_v4(context: *mut CUcontext, parameters: *mut c_void, flags: c_uint, device: CUdevice) = memory::contexts::create_with_parameters;
    cuCtxDestroy(context: CUcontext) = memory::contexts::destroy;
    cuCtxDestroy_v2(context: CUcontext) = memory::contexts::destroy;
    cuDevicePrimaryCtxRelease(device: CUdevice) = memory::contexts::release_primary;
    cuDevicePrimaryCtxRelease_v2(device: CUdevice) = memory::contexts::release_primary;
    cuDevicePrimaryCtxReset(device: CUdevice) = memory::contexts::reset_primary;
    cuDevicePrimaryCtxReset_v2(device: CUdevice) = memory::contexts::reset_primary;
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) = memory::contexts::retain_primary;

    // Green contexts, of which each has its card's primary context
    cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx) = memory::green::context;
    cuGreenCtxCreate(green: *mut CUgreenCtx, resources: *mut c_void, device: CUdevice, flags: c_uint) = memory::green::create;
    cuGreenCtxDestroy(green: CUgreenCtx) = memory::green::destroy;

    // Memory by address
    cuMemAlloc(address: *mut c_uint, bytes: c_uint) = memory::allocations::allocate_32;
    cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) = memory::allocations::allocate_managed;
    cuMemAllocPitch_v2(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint) = memory::allocations::allocate_pitch;
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) = memory::allocations::allocate;
    cuMemFree(address: c_uint) = memory::allocations::free_32;
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) = memory::allocations::free_async::<false>;
    cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) = memory::allocations::free_async::<true>;
    cuMemFree_v2(address: CUdeviceptr) = memory::allocations::free;

    // Memory of other processes
    cuIpcCloseMemHandle(address: CUdeviceptr) = memory::imports::close_handle;
    cuIpcOpenMemHandle(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) = memory::imports::open_handle;
    cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) = memory::imports::open_handle;

    // Pools
    cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) = memory::pools::allocate::<false>;
    cuMemAllocAsync_ptsz(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) = memory::pools::allocate::<true>;
    cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) = memory::pools::allocate_from::<false>;
    cuMemAllocFromPoolAsync_ptsz(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) = memory::pools::allocate_from::<true>;
    cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemAllocationProp) = memory::pools::create;
    cuMemPoolDestroy(pool: CUmemoryPool) = memory::pools::destroy;
    cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) = memory::pools::trim;

    // Physical memory
    cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: c_ulonglong) = memory::physical::create;
    cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shared: *mut c_void, kind: c_int) = memory::physical::import;
    cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong) = memory::physical::map;
    cuMemRelease(handle: CUmemGenericAllocationHandle) = memory::physical::release_handle;
    cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void) = memory::physical::retain;
    cuMemUnmap(address: CUdeviceptr, bytes: usize) = memory::physical::unmap;

    // Arrays
    cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) = memory::arrays::create_3d;
    cuArrayCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) = memory::arrays::create;
    cuArrayDestroy(array: CUarray) = memory::arrays::destroy;
    cuMipmappedArrayCreate(array: *mut CUmipmappedArray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) = memory::arrays::create_mipmapped;
    cuMipmappedArrayDestroy(array: CUmipmappedArray) = memory::arrays::destroy_mipmapped;

    // Memory of graphs
    cuDeviceGraphMemTrim(device: CUdevice) = memory::graphs::trim;
    cuGraphExecDestroy(exec: CUgraphExec) = memory::graphs::destroy;
    cuGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, length: usize) = memory::graphs::instantiate_with_log;
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) = memory::graphs::instantiate;
    cuGraphInstantiateWithParams(exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut c_void) = memory::graphs::instantiate_with_parameters;
    cuGraphInstantiateWithParams_ptsz(exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut c_void) = memory::graphs::instantiate_with_parameters;
    cuGraphInstantiate_v2(exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, length: usize) = memory::graphs::instantiate_with_log;

    // What is shown
    cuDeviceTotalMem(bytes: *mut c_uint, device: CUdevice) = memory::reported::total;
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) = memory::reported::total;
    cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) = memory::reported::info;
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) = memory::reported::info;
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
