//! Which cards there are: the container's, and those that MIG instances of the container are parts of, in the driver's order. A
//! container that sees more of them, because it was started with an environment of its own choice, still finds only what
//! it was given.

use core::ffi::c_uint;
use core::ptr;

use crate::driver::{nvmlDevice_t, nvmlReturn_t};

use super::{NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NO_PERMISSION, NVML_ERROR_NOT_FOUND, NVML_SUCCESS, parts};
use crate::driver::nvml::nvmlDeviceGetHandleByIndex_v2;
use crate::process;

/// `nvmlDeviceGetCount` and `_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn count(
    real: unsafe extern "C" fn(*mut c_uint) -> nvmlReturn_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    // SAFETY: the caller's argument as it came; what the driver has answered with success it has written.
    unsafe {
        let result = real(count);
        if result == NVML_SUCCESS && !count.is_null() {
            let ours = (0..*count).filter(|index| by_index(*index).is_some_and(|device| is_ours(device)));
            *count = ours.count() as c_uint;
        }
        result
    }
}

/// `nvmlDeviceGetHandleByIndex` and `_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn handle_by_index(
    real: unsafe extern "C" fn(c_uint, *mut nvmlDevice_t) -> nvmlReturn_t,
    index: c_uint,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let mut ours = 0;
    // As many as a driver can have.
    for position in 0..64 {
        let mut found = ptr::null_mut();
        // SAFETY: a handle is written to a handle, and then asked for its name.
        unsafe {
            match real(position, &raw mut found) {
                NVML_SUCCESS if !is_ours(found) => {}
                NVML_SUCCESS if ours < index => ours += 1,
                NVML_SUCCESS if device.is_null() => return NVML_ERROR_INVALID_ARGUMENT,
                NVML_SUCCESS => {
                    *device = found;
                    return NVML_SUCCESS;
                }
                result => return result,
            }
        }
    }
    NVML_ERROR_INVALID_ARGUMENT
}

/// `nvmlDeviceGetHandleByUUID`, `…ByPciBusId` and `…BySerial`: cards that aren't the container's are not found.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn handle_by_name(
    real: unsafe extern "C" fn(*const core::ffi::c_char, *mut nvmlDevice_t) -> nvmlReturn_t,
    name: *const core::ffi::c_char,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments as they came; what the driver has answered with success it has written.
    unsafe {
        match real(name, device) {
            NVML_SUCCESS if !device.is_null() && !is_ours(*device) => NVML_ERROR_NO_PERMISSION,
            result => result,
        }
    }
}

/// `nvmlDeviceGetMigDeviceHandleByIndex`: other containers' instances are not found.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn instance_by_index(
    real: unsafe extern "C" fn(nvmlDevice_t, c_uint, *mut nvmlDevice_t) -> nvmlReturn_t,
    device: nvmlDevice_t,
    index: c_uint,
    instance: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments as they came; what the driver has answered with success it has written.
    unsafe {
        match real(device, index, instance) {
            NVML_SUCCESS if !instance.is_null() && !is_ours(*instance) => NVML_ERROR_NOT_FOUND,
            result => result,
        }
    }
}

/// # Safety
/// None but that the driver is there.
unsafe fn by_index(index: c_uint) -> Option<nvmlDevice_t> {
    let mut device = ptr::null_mut();
    // SAFETY: a handle is written to a handle.
    let result = unsafe { nvmlDeviceGetHandleByIndex_v2(index, &raw mut device) };
    (result == NVML_SUCCESS).then_some(device)
}

/// Whether a device is the container's, or has a part that is.
///
/// # Safety
/// A device of NVML's.
unsafe fn is_ours(device: nvmlDevice_t) -> bool {
    // SAFETY: the caller's guarantee.
    process::this().is_ok_and(|process| unsafe { parts(process, device) }.next().is_some())
}
