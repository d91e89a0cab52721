//! What programs are told by NVML: their share, as if it were the card.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::limits::Id;
use crate::process;
use crate::table::nvml_of_driver::nvmlDeviceGetUUID;

pub(crate) type nvmlDevice_t = *mut c_void;
type nvmlReturn_t = c_int;

pub(crate) const NVML_SUCCESS: nvmlReturn_t = 0;
pub(crate) const NVML_ERROR_NO_PERMISSION: nvmlReturn_t = 4;
/// A function that this driver doesn't have.
pub(crate) const NVML_ERROR_FUNCTION_NOT_FOUND: nvmlReturn_t = 13;

/// Bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct nvmlMemory_t {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlDeviceGetMemoryInfo`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn memory_info(
    real: unsafe extern "C" fn(nvmlDevice_t, *mut nvmlMemory_t) -> nvmlReturn_t,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(device, memory) };
    if result != NVML_SUCCESS || memory.is_null() {
        return result;
    }
    let Ok(process) = process::this() else { return NVML_ERROR_NO_PERMISSION };
    // SAFETY: a device that the driver has just answered for.
    let Some(card) = (unsafe { id_of(device) }).and_then(|id| process.find(&id)) else { return result };
    let (limit, used) = (process.limit(card), process.used(card));
    // SAFETY: the driver has just written there.
    unsafe {
        let free = (*memory).free.min(limit.saturating_sub(used));
        *memory = nvmlMemory_t { total: limit, free, used };
    }
    result
}

/// # Safety
/// A device of NVML's.
unsafe fn id_of(device: nvmlDevice_t) -> Option<Id> {
    let mut uuid: [c_char; 96] = [0; 96];
    // SAFETY: the buffer is as long as is said, and ends with a zero byte whatever is written before it.
    let result = unsafe { nvmlDeviceGetUUID(device, uuid.as_mut_ptr(), uuid.len() as c_uint - 1) };
    // SAFETY: as above.
    (result == NVML_SUCCESS).then(|| unsafe { CStr::from_ptr(uuid.as_ptr()) }).and_then(|uuid| Id::new(uuid.to_bytes()))
}
