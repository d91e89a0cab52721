//! Processes on a card: the container's own, by their numbers there and by its accounting region. The driver numbers them as the
//! node does, and shows everybody's.

use core::ffi::c_uint;

use crate::driver::{nvmlDevice_t, nvmlReturn_t};

use super::{NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NO_PERMISSION, NVML_SUCCESS, parts};
use crate::driver::nvml::{nvmlDeviceGetComputeInstanceId, nvmlDeviceGetGpuInstanceId};
use crate::process;

/// A process, as the first version of the call lists it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct nvmlProcessInfo_v1_t {
    pid: c_uint,
    usedGpuMemory: u64,
}

/// A process, as the second and third version of the call list it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct nvmlProcessInfo_t {
    pid: c_uint,
    usedGpuMemory: u64,
    gpuInstanceId: c_uint,
    computeInstanceId: c_uint,
}

/// The MIG instance of a process that uses a whole GPU.
const NO_INSTANCE: c_uint = c_uint::MAX;

type Call<T> = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut T) -> nvmlReturn_t;

/// `nvmlDeviceGetComputeRunningProcesses`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn compute(
    _real: Call<nvmlProcessInfo_v1_t>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's guarantee.
    unsafe { listed(device, count, infos, |_| (), |(), pid, bytes| nvmlProcessInfo_v1_t { pid, usedGpuMemory: bytes }) }
}

/// `nvmlDeviceGetComputeRunningProcesses_v2` and `_v3`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn compute_v3(
    _real: Call<nvmlProcessInfo_t>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's guarantee.
    unsafe { listed(device, count, infos, |part| instance_ids(part), info) }
}

fn info((gpuInstanceId, computeInstanceId): (c_uint, c_uint), pid: c_uint, bytes: u64) -> nvmlProcessInfo_t {
    nvmlProcessInfo_t { pid, usedGpuMemory: bytes, gpuInstanceId, computeInstanceId }
}

/// The numbers of a MIG instance on its card.
///
/// # Safety
/// A device of NVML's.
unsafe fn instance_ids(part: nvmlDevice_t) -> (c_uint, c_uint) {
    let mut ids = (NO_INSTANCE, NO_INSTANCE);
    // SAFETY: numbers are written to numbers; of a device that is no instance nothing is written.
    unsafe {
        let _no_instance = nvmlDeviceGetGpuInstanceId(part, &raw mut ids.0);
        let _no_instance = nvmlDeviceGetComputeInstanceId(part, &raw mut ids.1);
    }
    ids
}

/// `nvmlDeviceGetGraphicsRunningProcesses`, `nvmlDeviceGetMPSComputeRunningProcesses`: none, as the library counts neither.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn none(
    _real: unsafe extern "C" fn(nvmlDevice_t, *mut c_uint) -> nvmlReturn_t,
    _device: nvmlDevice_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    if count.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: the caller's place for a number.
    unsafe { *count = 0 };
    NVML_SUCCESS
}

/// Lists the processes on the container's parts of a device, each with what `describe` says of the part.
///
/// # Safety
/// A device of NVML's, and room for `*count` entries at `infos`.
unsafe fn listed<P: Copy, T>(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut T,
    describe: impl Fn(nvmlDevice_t) -> P,
    info: impl Fn(P, c_uint, u64) -> T,
) -> nvmlReturn_t {
    if count.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    let Ok(process) = process::this() else { return NVML_ERROR_NO_PERMISSION };
    // SAFETY: the caller's number.
    let capacity = if infos.is_null() { 0 } else { unsafe { *count } };
    let mut found = 0;
    let mut is_ours = false;
    // SAFETY: the caller's guarantee.
    for (card, part) in unsafe { parts(process, device) } {
        is_ours = true;
        let described = describe(part);
        for (pid, bytes) in process.region().holders(card) {
            if found < capacity {
                // SAFETY: there is room for `capacity` entries.
                unsafe { infos.add(found as usize).write(info(described, pid, bytes)) };
            }
            found += 1;
        }
    }
    if !is_ours {
        return NVML_ERROR_NO_PERMISSION;
    }
    // SAFETY: the caller's place for a number.
    unsafe { *count = found };
    if found > capacity { NVML_ERROR_INSUFFICIENT_SIZE } else { NVML_SUCCESS }
}
