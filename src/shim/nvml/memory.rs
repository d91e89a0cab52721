//! A card's memory: the share, what the container takes of it, and what is left of that or of the card, if that is less. That
//! of a card that is cut into MIG instances is its own: shares are of instances.

use core::ffi::c_uint;

use crate::driver::{nvmlDevice_t, nvmlReturn_t};

use super::{NVML_ERROR_NO_PERMISSION, NVML_SUCCESS, parts};
use crate::process::{self, UNLIMITED};
use crate::time;

/// Memory of a card, in bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct nvmlMemory_t {
    total: u64,
    free: u64,
    used: u64,
}

/// Memory of a card, in bytes, with what the driver reserves for itself.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct nvmlMemory_v2_t {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlDeviceGetMemoryInfo`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn info(
    real: unsafe extern "C" fn(nvmlDevice_t, *mut nvmlMemory_t) -> nvmlReturn_t,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments as they came; what the driver has answered with success it has written.
    unsafe {
        let result = real(device, memory);
        if result != NVML_SUCCESS || memory.is_null() {
            return result;
        }
        changed(device, *memory, |shown| *memory = shown)
    }
}

/// `nvmlDeviceGetMemoryInfo_v2`. What the driver keeps for itself isn't the tenant's: nothing of it is shown.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn info_v2(
    real: unsafe extern "C" fn(nvmlDevice_t, *mut nvmlMemory_v2_t) -> nvmlReturn_t,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    // SAFETY: as above. The driver refuses every other version of the structure.
    unsafe {
        let result = real(device, memory);
        if result != NVML_SUCCESS || memory.is_null() {
            return result;
        }
        let version = (*memory).version;
        let before = nvmlMemory_t { total: (*memory).total, free: (*memory).free, used: (*memory).used };
        changed(device, before, |nvmlMemory_t { total, free, used }| {
            *memory = nvmlMemory_v2_t { version, total, reserved: 0, free, used };
        })
    }
}

/// # Safety
/// A device of NVML's.
unsafe fn changed(device: nvmlDevice_t, before: nvmlMemory_t, show: impl FnOnce(nvmlMemory_t)) -> nvmlReturn_t {
    let Ok(process) = process::this() else { return NVML_ERROR_NO_PERMISSION };
    // SAFETY: the caller's guarantee.
    let Some((card, part)) = unsafe { parts(process, device) }.next() else { return NVML_ERROR_NO_PERMISSION };
    if part != device {
        show(before);
        return NVML_SUCCESS;
    }
    process.refresh(time::now());
    let (limit, used) = (process.limit(card), process.used(card));
    let total = if limit == UNLIMITED { before.total } else { limit };
    let free = if limit == UNLIMITED { total.saturating_sub(used) } else { process.tell_free(card) };
    // What an oversubscribed share has beyond the card lies on the host.
    let free = if process.is_oversubscribed(card) { free } else { before.free.min(free) };
    show(nvmlMemory_t { total, free, used: used.min(total) });
    NVML_SUCCESS
}
