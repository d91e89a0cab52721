//! What is hooked: the one list of it.
//!
//! A line is the driver's function by its exact name, its arguments (`cuda.h`, `nvml.h`), and the function of ours that is
//! called with the driver's own and the same arguments. Revisions and variants of a function have lines of their own, as
//! they have functions of their own.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::cuda::{
    CUDA_LAUNCH_PARAMS, CUcontext, CUdevice, CUevent, CUfunction, CUgraphExec, CUlaunchConfig, CUstream, CUuuid, ERROR_NOT_FOUND,
};
use crate::linker::Library;
use crate::nvml::memory::{nvmlMemory_t, nvmlMemory_v2_t};
use crate::nvml::processes::{nvmlProcessInfo_t, nvmlProcessInfo_v1_t};
use crate::nvml::{NVML_ERROR_FUNCTION_NOT_FOUND, nvmlDevice_t};
use crate::pace::end;
use crate::pace::launch::{self, PER_THREAD, SHARED};
use crate::{memory, nvml, process, resolver};

macro_rules! name {
    ($name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name of C"), // when this is compiled
        }
    };
}

macro_rules! hooks {
    (
        $library:ident: $count:ident, $enumeration:ident, needs $needs:ident, absent $absent:ident;
        $( $name:ident ( $($argument:ident : $type:ty),* ) = $body:path; )*
    ) => {
        /// What is hooked, by number.
        #[allow(non_camel_case_types, reason = "the driver's names")]
        #[derive(Clone, Copy, Debug)]
        #[repr(usize)]
        pub(crate) enum $enumeration { $( $name ),* }

        const $count: usize = [ $( stringify!($name) ),* ].len();

        pub(crate) static $library: Library<$count, { $needs.len() }> = Library::new($needs, [
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
                let real: unsafe extern "C" fn($($type),*) -> c_int =
                    unsafe { core::mem::transmute(core::ptr::with_exposed_provenance::<()>(real)) };
                // SAFETY: the caller's promise.
                unsafe { $body(real, $($argument),*) }
            }
        )*
    };
}

macro_rules! needs {
    (
        $(#[$doc:meta])*
        $module:ident: $library:ident, $count:ident, absent $absent:ident;
        $( $name:ident ( $($argument:ident : $type:ty),* ); )*
    ) => {
        const $count: &[&CStr] = &[ $( name!($name) ),* ];

        $(#[$doc])*
        pub(crate) mod $module {
            use super::*;

            #[allow(non_camel_case_types, reason = "the driver's names")]
            #[repr(usize)]
            enum Needed { $( $name ),* }

            $(
                /// # Safety
                /// As the driver's.
                pub(crate) unsafe fn $name($($argument: $type),*) -> c_int {
                    let Some(real) = $library.needed(Needed::$name as usize) else { return $absent };
                    // SAFETY: it is the address of the driver's function of this name, which has these arguments.
                    let real: unsafe extern "C" fn($($type),*) -> c_int =
                        unsafe { core::mem::transmute(core::ptr::with_exposed_provenance::<()>(real)) };
                    // SAFETY: the caller's promise.
                    unsafe { real($($argument),*) }
                }
            )*
        }
    };
}

hooks! {
    CUDA: CUDA_HOOKS, Cuda, needs CUDA_NEEDS, absent ERROR_NOT_FOUND;

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
    cuStreamSynchronize(stream: CUstream) = end::stream_wait::<SHARED>;
    cuStreamSynchronize_ptsz(stream: CUstream) = end::stream_wait::<PER_THREAD>;
    cuCtxSynchronize() = end::context_wait;
    cuCtxSynchronize_v2(context: CUcontext) = end::context_wait_v2;
    cuStreamDestroy(stream: CUstream) = end::stream;
    cuStreamDestroy_v2(stream: CUstream) = end::stream;
    cuCtxDestroy(context: CUcontext) = end::context;
    cuCtxDestroy_v2(context: CUcontext) = end::context;
    cuDevicePrimaryCtxRelease(device: CUdevice) = end::primary;
    cuDevicePrimaryCtxRelease_v2(device: CUdevice) = end::primary;
    cuDevicePrimaryCtxReset(device: CUdevice) = end::primary;
    cuDevicePrimaryCtxReset_v2(device: CUdevice) = end::primary;

    // What is shown
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) = memory::shown::info;
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) = memory::shown::total;
}

hooks! {
    NVML: NVML_HOOKS, Nvml, needs NVML_NEEDS, absent NVML_ERROR_FUNCTION_NOT_FOUND;

    // Which cards there are
    nvmlDeviceGetCount(count: *mut c_uint) = nvml::devices::count;
    nvmlDeviceGetCount_v2(count: *mut c_uint) = nvml::devices::count;
    nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut nvmlDevice_t) = nvml::devices::handle_by_index;
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) = nvml::devices::handle_by_index;
    nvmlDeviceGetHandleByPciBusId(name: *const c_char, device: *mut nvmlDevice_t) = nvml::devices::handle_by_name;
    nvmlDeviceGetHandleByPciBusId_v2(name: *const c_char, device: *mut nvmlDevice_t) = nvml::devices::handle_by_name;
    nvmlDeviceGetHandleBySerial(name: *const c_char, device: *mut nvmlDevice_t) = nvml::devices::handle_by_name;
    nvmlDeviceGetHandleByUUID(name: *const c_char, device: *mut nvmlDevice_t) = nvml::devices::handle_by_name;

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
    let cuda = CUDA.hooks.iter().map(|(name, _)| *name);
    let nvml = NVML.hooks.iter().map(|(name, _)| *name);
    cuda.chain(nvml).filter_map(|name| name.to_str().ok())
}

needs! {
    /// Functions of CUDA that are called and not hooked.
    cuda: CUDA, CUDA_NEEDS, absent ERROR_NOT_FOUND;

    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxGetDevice(device: *mut CUdevice);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, is_active: *mut c_int);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventElapsedTime(milliseconds: *mut f32, from: CUevent, to: CUevent);
    cuEventQuery(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    cuStreamIsCapturing(stream: CUstream, status: *mut c_int);
    cuStreamQuery(stream: CUstream);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
}

needs! {
    /// Functions of NVML that are called and not hooked.
    nvml_of_driver: NVML, NVML_NEEDS, absent NVML_ERROR_FUNCTION_NOT_FOUND;

    nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t);
    nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint);
}
