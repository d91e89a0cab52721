//! A card's memory: the share, what the container takes of it, and what is left of that or of the card, if that is less. That
//! of a card that is cut into MIG instances is its own: shares are of instances. Where NVML has no figure, as for a card that
//! uses the processor's memory, the share is the answer all the same: programs would size themselves by the whole machine.

use core::ffi::c_uint;

use crate::driver::{nvmlDevice_t, nvmlReturn_t};

use super::{NVML_ERROR_NO_PERMISSION, NVML_ERROR_NOT_SUPPORTED, NVML_SUCCESS, parts};
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

/// Version of [`nvmlMemory_v2_t`]: its size, and 2 in the topmost byte.
#[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
const MEMORY_V2: c_uint = size_of::<nvmlMemory_v2_t>() as c_uint | 2 << 24;

/// `nvmlDeviceGetMemoryInfo`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn info(
    real: unsafe extern "C" fn(nvmlDevice_t, *mut nvmlMemory_t) -> nvmlReturn_t,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments as they came; what the driver has answered with success it has written, and where it has no
    // figures it has found nothing wrong with the arguments.
    unsafe {
        let result = real(device, memory);
        match result {
            _ if memory.is_null() => result,
            NVML_SUCCESS => changed(device, Some(*memory), result, |shown| *memory = shown),
            NVML_ERROR_NOT_SUPPORTED => changed(device, None, result, |shown| *memory = shown),
            _ => result,
        }
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
    // SAFETY: as above. The driver refuses every other version of the structure, unless it has no figures anyway.
    unsafe {
        let result = real(device, memory);
        let Some(&mut nvmlMemory_v2_t { version, total, free, used, .. }) = memory.as_mut() else { return result };
        let before = match result {
            NVML_SUCCESS => Some(nvmlMemory_t { total, free, used }),
            NVML_ERROR_NOT_SUPPORTED if version == MEMORY_V2 => None,
            _ => return result,
        };
        changed(device, before, result, |nvmlMemory_t { total, free, used }| {
            *memory = nvmlMemory_v2_t { version, total, reserved: 0, free, used };
        })
    }
}

/// Shows the container's part. `before`: the driver's figures; `None` where it has none, as for memory that a card shares with
/// the processor, and then `result` stays the answer about what isn't limited.
///
/// # Safety
/// A device of NVML's.
unsafe fn changed(
    device: nvmlDevice_t,
    before: Option<nvmlMemory_t>,
    result: nvmlReturn_t,
    show: impl FnOnce(nvmlMemory_t),
) -> nvmlReturn_t {
    let Ok(process) = process::this() else { return NVML_ERROR_NO_PERMISSION };
    // SAFETY: the caller's guarantee.
    let Some((card, part)) = unsafe { parts(process, device) }.next() else { return NVML_ERROR_NO_PERMISSION };
    if part != device {
        before.map(show);
        return result;
    }
    process.refresh(time::now());
    let limit = process.limit(card);
    let used = process.used(card);
    let total = match before {
        Some(before) if limit == UNLIMITED => before.total,
        None if limit == UNLIMITED => return result,
        _ => limit,
    };
    let free = if limit == UNLIMITED { total.saturating_sub(used) } else { process.tell_free(card) };
    // What an oversubscribed share has beyond the card lies on the host.
    let of_card = before.filter(|_| !process.is_oversubscribed(card)).map_or(free, |before| before.free);
    show(nvmlMemory_t { total, free: of_card.min(free), used: used.min(total) });
    NVML_SUCCESS
}
