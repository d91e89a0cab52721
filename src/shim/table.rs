//! What is hooked: the one list of it.
//!
//! A line is the driver's function by its exact name, its arguments (`cuda.h`, `nvml.h`), and the function of ours that is
//! called with the driver's own and the same arguments. Revisions and variants of a function have lines of their own, as
//! they have functions of their own.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::cuda::{
    CUDA_LAUNCH_PARAMS, CUcontext, CUdevice, CUevent, CUfunction, CUgraphExec, CUlaunchConfig, CUstream, CUuuid,
    ERROR_NOT_FOUND,
};
use crate::linker::Library;
use crate::nvml::{NVML_ERROR_FUNCTION_NOT_FOUND, nvmlDevice_t, nvmlMemory_t};
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

    nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) = nvml::memory_info;
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

    nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint);
}
