//! NVML hooks: a program sees its share as if it were the card, and no processes but its container's.
//!
//! Temperatures, clocks, links and how busy a card is are the card's own. What would change a card for its other tenants is
//! refused.

pub(crate) mod devices;
pub(crate) mod memory;
pub(crate) mod processes;

use core::ffi::{CStr, c_char, c_uint};
use core::ptr;

use crate::cuda::CUresult;
use crate::driver::nvml::{nvmlDeviceGetMaxMigDeviceCount, nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGetUUID};
use crate::driver::{nvmlDevice_t, nvmlReturn_t};
use crate::limits::CardId;
use crate::process::Process;

pub(crate) const NVML_SUCCESS: nvmlReturn_t = 0;
const NVML_ERROR_INVALID_ARGUMENT: nvmlReturn_t = 2;
const NVML_ERROR_NOT_SUPPORTED: nvmlReturn_t = 3;
const NVML_ERROR_NO_PERMISSION: nvmlReturn_t = 4;
const NVML_ERROR_NOT_FOUND: nvmlReturn_t = 6;
const NVML_ERROR_INSUFFICIENT_SIZE: nvmlReturn_t = 7;

/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`: the longest name of a card, with a zero byte.
const UUID: usize = 96;

/// Refuses what would change a card for other containers.
///
/// # Safety
/// None is needed: the driver isn't called.
pub(crate) unsafe fn denied(_real: unsafe extern "C" fn() -> nvmlReturn_t) -> nvmlReturn_t {
    NVML_ERROR_NO_PERMISSION
}

/// Answers what NVML would tell of other containers' processes: not found.
///
/// # Safety
/// None is needed: the driver isn't called.
pub(crate) unsafe fn unseen(_real: unsafe extern "C" fn() -> nvmlReturn_t) -> nvmlReturn_t {
    NVML_ERROR_NOT_FOUND
}

/// What of a device is the container's, by position in the limits file: the card, or MIG instances of it. Nothing of a device
/// whose UUID NVML doesn't tell.
///
/// # Safety
/// A device of NVML's.
unsafe fn parts(process: &'static Process, device: nvmlDevice_t) -> impl Iterator<Item = (usize, nvmlDevice_t)> {
    // SAFETY: the caller's guarantee.
    let position = move |device| process.find(&unsafe { id_of(device) }?);
    let itself = position(device);
    let mut instances = 0;
    if itself.is_none() && process.has_instances() {
        // SAFETY: a number is written to a number.
        let _no_mig = unsafe { nvmlDeviceGetMaxMigDeviceCount(device, &raw mut instances) };
    }
    let part = move |index| {
        // SAFETY: the caller's guarantee.
        let instance = unsafe { instance(device, index) }?;
        Some((position(instance)?, instance))
    };
    itself.map(|position| (position, device)).into_iter().chain((0..instances).filter_map(part))
}

/// A MIG instance of a device, if there is one with this number.
///
/// # Safety
/// A device of NVML's.
unsafe fn instance(device: nvmlDevice_t, index: c_uint) -> Option<nvmlDevice_t> {
    let mut instance = ptr::null_mut();
    // SAFETY: a handle is written to a handle.
    let result = unsafe { nvmlDeviceGetMigDeviceHandleByIndex(device, index, &raw mut instance) };
    (result == NVML_SUCCESS).then_some(instance)
}

/// # Safety
/// A device of NVML's.
unsafe fn id_of(device: nvmlDevice_t) -> Option<CardId> {
    let mut uuid: [c_char; UUID] = [0; UUID];
    // SAFETY: the buffer is longer than is said, and so ends with a zero byte whatever is written.
    let result: CUresult = unsafe { nvmlDeviceGetUUID(device, uuid.as_mut_ptr(), UUID as c_uint - 1) };
    // SAFETY: as above.
    let uuid = (result == NVML_SUCCESS).then(|| unsafe { CStr::from_ptr(uuid.as_ptr()) })?;
    Some(CardId::new(uuid.to_str().ok()?))
}
